"""What was worked out for settings of one structure, kept for the next scenario that has it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memo(Generic[Key, Value]):
    """The newest `most` values by key.

    For values that hang on less than the arguments they are made of: `functools.lru_cache` takes all arguments as key.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: dict[Key, Value] = {}

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of this key, made now if it is not there."""
        found = self._values.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def put(self, key: Key, value: Value) -> None:
        """Keep a value that was made elsewhere."""
        self._values[key] = value
        while len(self._values) > self._most:
            del self._values[next(iter(self._values))]

    def items(self) -> ItemsView[Key, Value]:
        """Keys with their values, the oldest first."""
        return self._values.items()
