"""Quantities of which some are worked out when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from vramwise.result import Quantity
from vramwise.site import kept_in_force


class LazyQuantities(Mapping[str, Quantity]):
    """A table of quantities; each one in `late` is made once it is asked for. `names` is their order.

    Replaying a step takes ten times as long as the rest of an estimate, which often nobody asks for.
    """

    def __init__(
        self, names: Iterable[str], ready: Mapping[str, Quantity], late: Mapping[str, Callable[[], Quantity]]
    ) -> None:
        self._names, self._ready, self._late = tuple(names), dict(ready), {
            name: kept_in_force(one) for name, one in late.items()
        }  # fmt: skip

    def __getitem__(self, name: str) -> Quantity:
        if name in self._late:
            self._ready[name] = self._late[name]()
            del self._late[name]
        return self._ready[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)
