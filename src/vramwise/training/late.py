"""Quantities of which some are worked out when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vramwise.result import Quantity


class LateQuantities(Mapping[str, Quantity]):
    """A table of quantities; `make` gives the ones named `late` together, once one of them is asked for.

    Replaying a step takes ten times as long as the rest of an estimate, which often nobody asks for.
    """

    def __init__(
        self, ready: Mapping[str, Quantity], late: tuple[str, ...], make: Callable[[], Mapping[str, Quantity]]
    ) -> None:
        self._ready, self._late = dict(ready), late
        self._make: Callable[[], Mapping[str, Quantity]] | None = make

    def __getitem__(self, name: str) -> Quantity:
        if name in self._late and self._make is not None:
            made = self._make()
            self._ready |= {late: made[late] for late in self._late}
            self._make = None
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
