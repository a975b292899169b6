"""Calibrated constants of the training counters, with interval and source, from calibration.csv."""

from __future__ import annotations

from functools import cache

from vramwise.records import record
from vramwise.tables import records, table


@record
class Calibrated:
    """One constant: the ends of its 90 % interval, its expected value and where it comes from."""

    low: float
    expected: float
    high: float
    source: str


@cache
def _table() -> dict[str, Calibrated]:
    rows = table(__file__)
    return {row["name"]: found for row, found in zip(rows, records(Calibrated, rows), strict=True)}


def calibrated(name: str) -> Calibrated:
    """The constant called `name`."""
    return _table()[name]
