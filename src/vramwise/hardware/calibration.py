"""Calibrated constants of cards (calibration.csv), and what readers of several measured rows share."""

from __future__ import annotations

from functools import cache

from vramwise.tables import table


@cache
def calibrated(name: str) -> tuple[float, float, float]:
    """low, expected and high of one calibrated constant."""
    row = next(row for row in table(__file__) if row["name"] == name)
    return row.number("low"), row.number("expected"), row.number("high")


def median_bytes(sizes: list[int]) -> int:
    """Median of whole numbers (the statistics module would double the time this package takes to import)."""
    ordered = sorted(sizes)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2
