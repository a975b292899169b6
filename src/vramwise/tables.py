"""CSV tables of the package: facts as rows, each with its source, beside the module that reads them.

A cell is text until it is asked for as something else. An empty cell of a number is None where that may be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")


class Row(dict[str, str]):
    """One row of a table, by the names of its columns."""

    def number(self, column: str) -> float:
        """The figure in a cell. Raises ValueError where there is none."""
        return float(self[column])

    def number_or_none(self, column: str) -> float | None:
        return float(self[column]) if self[column] else None

    def whole(self, column: str) -> int:
        """The whole number in a cell. Raises ValueError where there is none."""
        return int(self[column])

    def whole_or_none(self, column: str) -> int | None:
        return int(self[column]) if self[column] else None

    def words(self, column: str, separator: str | None = None) -> tuple[str, ...]:
        """The parts of a cell that holds several."""
        return tuple(part for part in self[column].split(separator) if part)


@cache
def table(beside: str, name: str = "") -> tuple[Row, ...]:
    """Rows of the table `name`.csv beside a module (`__file__`), or of the one called as the module is.

    Raises ValueError where a row has other cells than the table has columns.
    """
    stem = os.path.splitext(beside)[0]  # pathlib takes longer to import than most tables to read
    return rows_of(os.path.join(os.path.dirname(stem), f"{name}.csv") if name else f"{stem}.csv")


def rows_of(path: str | Path) -> tuple[Row, ...]:
    """Rows of a CSV file, in its order. Raises OSError, ValueError where a row has other cells than columns."""
    import csv

    with open(path, newline="", encoding="utf-8") as file:
        columns, *lines = csv.reader(file)
    short = next((number for number, line in enumerate(lines, 2) if line and len(line) != len(columns)), None)
    if short is not None:
        raise ValueError(f"{os.path.basename(path)}: row {short} has other cells than the table has columns")
    return tuple(Row(zip(columns, line, strict=True)) for line in lines if line)


_READERS: dict[str, Callable[[str], object]] = {
    "str": str,
    "int": int,
    "float": float,
    "int | None": lambda text: int(text) if text else None,
    "float | None": lambda text: float(text) if text else None,
}


def records(cls: type[R], rows: Iterable[Row]) -> tuple[R, ...]:
    """Rows as dataclasses whose fields are called as the columns: text, numbers, and numbers or None.

    Annotations are read as they are written (`from __future__ import annotations`). Raises KeyError for a field of
    another kind or without a column, ValueError for a cell that is no number.
    """
    from dataclasses import fields  # which most tables never need

    readers = {field.name: _READERS[str(field.type)] for field in fields(cls)}
    return tuple(cls(**{name: read(row[name]) for name, read in readers.items()}) for row in rows)
