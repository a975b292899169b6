"""The CSV tables beside this file, read once."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

Row = dict[str, str]


@cache
def table(name: str) -> tuple[Row, ...]:
    """Rows of `name`.csv, in the file's order."""
    with open(Path(__file__).parent / f"{name}.csv", newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def calibrated(name: str) -> tuple[float, float, float]:
    """low, expected and high of one calibrated constant."""
    row = next(row for row in table("calibration") if row["name"] == name)
    return float(row["low"]), float(row["expected"]), float(row["high"])


def median_bytes(sizes: list[int]) -> int:
    """Median of whole numbers (the statistics module would double the time this package takes to import)."""
    ordered = sorted(sizes)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def number(text: str) -> float | None:
    """The figure in a cell, None when the cell is empty."""
    return float(text) if text else None
