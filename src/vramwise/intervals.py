"""How far counters lay from their estimates in runs of sources that had no say: 90 % intervals, from intervals.csv.

The table is made by `tools/build_intervals.py` from the measured cases: a row says, for a kind of estimate (its
*cell*), how far to each side nine of ten counters of a source that is not among the cases may be expected to lie.
Two scales:

- `around`: a share of a size (of the estimate itself, mostly). What a scenario leaves open comes on top: the distance
  to what the answer would be the other way, and the two add up as squares do.
- `stretched`: a multiple of the interval that the terms have by themselves, from their constants or from runs on one's
  own machines, so that these keep narrowing it.

What every term says exactly asks for neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

from vramwise.records import record
from vramwise.result import Quantity
from vramwise.tables import Row, table

WHOLE: Final = ""
"""The column `without` of rows that hold for estimates; others name the source that was left out."""


@record
class Reach:
    """How far the truth may lie below and above an estimate, in units of a scale."""

    below: float
    above: float


@record
class Asked:
    """What an estimate asked of the table: the cell, what one unit is to each side, the distances it had before, and
    what is certainly there."""

    cell: str
    unit_below: float
    unit_above: float
    own_below: float
    own_above: float
    certain: float = 0.0


Table = Mapping[str, Reach]
_judging: ContextVar[Table | None] = ContextVar("vramwise_intervals", default=None)
_asked: ContextVar[dict[str, Asked] | None] = ContextVar("vramwise_intervals_asked", default=None)


def around(name: str, quantity: Quantity, cell: str, unit: Any, certain: Any = 0) -> Quantity:
    """The quantity with what its kind of estimate misses by, in shares of `unit`, beside the distances that it has.

    Its low end is not below what is `certain`: the terms that are exact.
    """
    reach = _table()[cell]
    below, above = quantity.expected - quantity.low, quantity.high - quantity.expected
    asked = _asked.get()
    if asked is not None:
        asked[name] = Asked(cell, float(unit), float(unit), float(below), float(above), float(certain))
    low, high = quantity.expected - hypotenuse(below, reach.below * unit), hypotenuse(above, reach.above * unit)
    least = min(quantity.expected, max(0, certain))
    return Quantity.around(max(least, low), quantity.expected, quantity.expected + high)


def stretched(name: str, quantity: Quantity, cell: str, least: float) -> Quantity:
    """The quantity with its own distances, of at least `least`, times what its kind of estimate misses by."""
    reach = _table()[cell]
    below, above = (
        hypotenuse(own, least) for own in (quantity.expected - quantity.low, quantity.high - quantity.expected)
    )
    asked = _asked.get()
    if asked is not None:
        asked[name] = Asked(cell, below, above, 0.0, 0.0)
    low, high = quantity.expected - reach.below * below, quantity.expected + reach.above * above
    return Quantity.around(max(0, low), quantity.expected, high)


def hypotenuse(*sides: Any) -> Any:
    """`math.hypot`, also of what stands for many configurations."""
    try:
        return math.hypot(*sides)
    except TypeError:
        from vramwise.points.expression import Real

        return Real(math.hypot, *sides)


@contextmanager
def judged_by(reaches: Table) -> Iterator[dict[str, Asked]]:
    """Estimates inside take these rows in place of the table's; yields what they asked, by quantity."""
    asked: dict[str, Asked] = {}
    tokens = _judging.set(reaches), _asked.set(asked)
    try:
        yield asked
    finally:
        _judging.reset(tokens[0])
        _asked.reset(tokens[1])


def left_out(source: str) -> Table:
    """The table as it is without a source; the whole one where the source has no say in it."""
    return _without().get(source, _without()[WHOLE])


@cache
def _without() -> Mapping[str, Table]:
    found: dict[str, dict[str, Reach]] = {WHOLE: dict(_whole())}
    for row in table(__file__, "left_out"):
        found.setdefault(row["without"], dict(_whole()))[row["cell"]] = _reach(row)
    return found


@cache
def _whole() -> Table:
    return {row["cell"]: _reach(row) for row in table(__file__)}


def _reach(row: Row) -> Reach:
    return Reach(row.number("below"), row.number("above"))


def _table() -> Table:
    judging = _judging.get()
    return _whole() if judging is None else judging
