"""Columns of whole numbers and names that grow while a trace is read, in as few bytes a cell as their numbers need."""

from __future__ import annotations

from array import array
from collections import Counter
from sys import getsizeof
from typing import Any, Final

from vramwise.units import MIB

LONGEST_NAME: Final = 16_384
"""Characters that are kept of a name; C++ writes template arguments out, of which some names have kilobytes."""
MOST_NAME_BYTES: Final = 32 * MIB
"""Of all names of a trace together: 150,000 short ones."""
BYTES_BESIDE: Final = 150
"""What a name takes beside its text: its place in a table that grows by doubling, and a number."""
FURTHER: Final = "(further names)"
"""The name of every event whose own found no room."""


class Growing:
    """Columns that grow together; they become the recording's without a copy.

    `kinds`: a letter of each, `q` for eight bytes, `i` for four, which become eight where a number needs them.
    """

    def __init__(self, kinds: str) -> None:
        self._cells = [array(kind) for kind in kinds]

    def __len__(self) -> int:
        return len(self._cells[0])

    def extend(self, *columns: list[int]) -> None:
        """As many new rows as each of these columns has."""
        for place, values in enumerate(columns):
            try:
                self._cells[place].fromlist(values)
            except OverflowError:
                self._cells[place] = array("q", self._cells[place])
                self._cells[place].fromlist(values)

    def append(self, *row: int) -> None:
        """One row."""
        self.extend(*([value] for value in row))

    def columns(self) -> list[Any]:
        """Each column by itself. Nothing can be added any more."""
        from vramwise.utilization.profiler.columns import np

        return [np.asarray(cells) for cells in self._cells]


class Names:
    """Different names in the order in which they first came, in a bounded number of bytes.

    Real traces have some thousand, of a kilobyte at most; what is beyond the bounds is cut, and `left_out` says so.
    """

    def __init__(self, longest: int = LONGEST_NAME) -> None:
        self._longest = longest
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        self._room = MOST_NAME_BYTES
        self._without_room = 0
        self._cut = 0

    def place(self, name: str | None) -> int:
        """Where it is."""
        known = self._places.get(name or "")
        return self._new(name or "") if known is None else known

    def places(self, names: list[str | None]) -> list[int]:
        """`place` of each."""
        found: list[Any] = list(map(self._places.get, names))  # type: ignore[arg-type]
        return list(map(self.place, names)) if None in found else found

    def kept(self, name: str) -> str:
        """The name as it is kept, one object for all that are equal to it."""
        return self._names[self.place(name)]

    def known(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._names)

    def left_out(self) -> Counter[str]:
        """What was cut, and of how many events."""
        return Counter({
            f"names beyond {MOST_NAME_BYTES // MIB} MiB": self._without_room,
            f"ends of names beyond {self._longest:,} characters": self._cut,
        })  # fmt: skip

    def _new(self, name: str) -> int:
        if len(name) > self._longest:
            self._cut += 1
            name = name[: self._longest]
            if (known := self._places.get(name)) is not None:
                return known
        self._room -= getsizeof(name) + BYTES_BESIDE
        if self._room < 0:
            self._without_room += 1
            name = FURTHER
        if name not in self._places:
            self._places[name] = len(self._names)
            self._names.append(name)
        return self._places[name]
