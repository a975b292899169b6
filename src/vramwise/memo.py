"""What was worked out for settings of one structure, kept for the next scenario that has it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, ItemsView, Mapping
from functools import update_wrapper
from typing import Final, Generic, ParamSpec, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


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


_Values = dict[Hashable, object]
Stored = Callable[[], _Values]
"""Values that an earlier run kept, read when the first of them is asked for."""
_NOTHING: Final = object()
_MOST_MODELS, _MOST_OF_A_MODEL, _MOST_OF_ALL = 128, 1024, 8192
_kept: dict[str, dict[Hashable, _Values | Stored]] = {}
"""What functions made, by their names and their models."""


class OfModel(Generic[Parameters, Value]):
    """A function of a model and settings, whose values are kept by them (`of_model`)."""

    def __init__(self, function: Callable[Parameters, Value]) -> None:
        self._function = function
        self._models = _kept.setdefault(f"{function.__module__}.{function.__qualname__}", {})
        self._many = 0
        update_wrapper(self, function)

    def __call__(self, *args: Parameters.args, **settings: Parameters.kwargs) -> Value:
        """The value; settings that are given by name are a key of their own."""
        model, key = args[0], (*args[1:], *settings.items())
        values = self._models.get(model)
        if not isinstance(values, dict):
            values = self._opened(model, values)
        found = values.get(key, _NOTHING)
        if found is _NOTHING:
            found = self._function(*args, **settings)
            if len(values) >= _MOST_OF_A_MODEL:
                self._many -= len(values)
                values.clear()
            values[key] = found
            self._many += 1
        return cast(Value, found)

    def _opened(self, model: Hashable, stored: Stored | None) -> _Values:
        while self._models and (len(self._models) >= _MOST_MODELS or self._many > _MOST_OF_ALL):
            gone = self._models.pop(next(iter(self._models)))
            self._many -= len(gone) if isinstance(gone, dict) else 0
        values = self._models[model] = {} if stored is None else stored()
        self._many += len(values)
        return values


def of_model(function: Callable[Parameters, Value]) -> OfModel[Parameters, Value]:
    """Keep what a function makes of a model and hashable settings, and let it be kept between runs.

    For values of plain classes that hang on the model's description and these settings alone, and are no answer.
    """
    return OfModel(function)


def kept_of(model: Hashable) -> dict[str, _Values]:
    """What functions made of a model so far, by their names; what was not asked for since it was put is left out."""
    found = ((name, models.get(model)) for name, models in _kept.items())
    return {name: values for name, values in found if isinstance(values, dict) and values}


def put_of(model: Hashable, stored: Mapping[str, Stored]) -> None:
    """Take what functions made of a model before."""
    for name, values in stored.items():
        _kept.setdefault(name, {})[model] = values
