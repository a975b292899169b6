"""Whether probabilities of fitting mean what they say: runs that were said to fit with p should fit p of the times."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from vramwise.accuracy.comparison import OomComparison
from vramwise.records import record

EDGES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
"""Ends of the bins: those of the words (*does not fit* ends at a half, *fits* begins at 95 %), and between."""


@record
class Bin:
    """Runs whose probability lies from `low` up to `high`: how many, what was said on average, what share fitted."""

    low: float
    high: float
    count: int
    said: float
    fitted: float


@record
class Reliability:
    """`brier`: the mean squared distance of a probability from what became of the run (1 fitted, 0 did not)."""

    count: int
    brier: float | None
    bins: tuple[Bin, ...]


def reliability_of(compared: Sequence[OomComparison]) -> Reliability:
    """The table of the runs whose verdict says a probability."""
    said = [(one.probability, not one.measured) for one in compared if one.probability is not None]
    if not said:
        return Reliability(0, None, ())
    brier = statistics.fmean((probability - fitted) ** 2 for probability, fitted in said)
    bins = []
    for low, high in pairwise(EDGES):
        inside = [one for one in said if low <= one[0] < high or (high == 1.0 and one[0] == 1.0)]
        if inside:
            probabilities, fitted = zip(*inside, strict=True)
            bins.append(Bin(low, high, len(inside), statistics.fmean(probabilities), statistics.fmean(fitted)))
    return Reliability(len(said), brier, tuple(bins))
