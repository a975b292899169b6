"""Calibrated constants of the training counters, with interval and source, from calibration.csv."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Calibrated:
    """One constant: the ends of its 90 % interval, its expected value and where it comes from."""

    low: float
    expected: float
    high: float
    source: str


@cache
def _table() -> dict[str, Calibrated]:
    import csv

    with open(Path(__file__).with_name("calibration.csv"), newline="", encoding="utf-8") as file:
        return {
            row["name"]: Calibrated(float(row["low"]), float(row["expected"]), float(row["high"]), row["source"])
            for row in csv.DictReader(file)
        }


def calibrated(name: str) -> Calibrated:
    """The constant called `name`."""
    return _table()[name]
