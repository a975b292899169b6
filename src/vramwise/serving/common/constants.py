"""Calibrated and assumed constants of engines: constants.csv, keyed by engine and range of versions."""

from __future__ import annotations

from functools import cache

from vramwise.records import record
from vramwise.serving.common.versions import version_of
from vramwise.tables import table


@record
class Constant:
    """A figure with its 90 % interval, and where it comes from."""

    low: float
    expected: float
    high: float
    kind: str
    source: str


Row = tuple[str, str, tuple[int, ...], tuple[int, ...] | None, Constant]


@cache
def _rows() -> tuple[Row, ...]:
    return tuple(
        (
            row["engine"],
            row["name"],
            version_of(row["from"]) if row["from"] else (0,),
            version_of(row["until"]) if row["until"] else None,
            Constant(row.number("low"), row.number("expected"), row.number("high"), row["kind"], row["source"]),
        )
        for row in table(__file__)
    )


@cache
def constant(engine: str, name: str, version: tuple[int, ...]) -> Constant:
    """The constant `name` of `engine` at `version`.

    A row holds from its `from` on, up to and without its `until`. Raises KeyError when no row covers the version.
    """
    for owner, row_name, start, stop, value in _rows():
        if owner == engine and row_name == name and start <= version and (stop is None or version < stop):
            return value
    raise KeyError(f"{engine} {name} {version}")
