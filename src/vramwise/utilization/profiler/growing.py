"""Columns of whole numbers and names that grow while a trace is read, in as few bytes a cell as their numbers need."""

from __future__ import annotations

from array import array
from typing import Any


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
    """Different names in the order in which they first came."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def place(self, name: str | None) -> int:
        """Where it is."""
        return self._places.setdefault(name or "", len(self._places))

    def places(self, names: list[str | None]) -> list[int]:
        """`place` of each."""
        found: list[Any] = list(map(self._places.get, names))  # type: ignore[arg-type]
        return list(map(self.place, names)) if None in found else found

    def known(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._places)
