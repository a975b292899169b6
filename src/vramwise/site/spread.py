"""From the values of several runs to one value with its 90 % interval.

The value is the median. Its interval is one for the next run (a prediction interval):

- one or two runs say nothing of their own spread: the shipped constant's distances, halved, or the runs' own range
  where that is wider. Halved (assumed) because a shipped interval spans cards, machines and versions, of which one
  machine has one each: four logs of vLLM 0.19 on H100 pairs have 2.06 to 2.10 GiB, the shipped row 0.5 to 2.2.
- from three on, t · s · √(1 + π / 2n): Student's t for 5 % on each side, the runs' standard deviation, and the error of
  a median of n; no wider than the shipped distances while every run lies within these.

It is never narrower than what the counters resolve. Runs whose values are far from the others are kept and not used:
farther from the median than five median absolute deviations (of at least the counter's resolution); of three to eleven
runs also farther than the shipped distances, since a few values that happen to lie close make any other look far: of
five normal ones so many were left out that intervals held 82 % of the next runs instead of 90.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vramwise.records import record

Interval = tuple[float, float, float]

T_95 = (
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
    1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
)  # fmt: skip
"""Student's t for 95 % at 1 to 30 degrees of freedom; tests/site holds them against the distribution."""
NORMAL_95 = 1.645
FAR = 5.0
LEAST_FOR_SPREAD, LEAST_FOR_OUTLIERS = 3, 12


@record
class Spread:
    """A value with its interval, from the values at `used`; `left_out` are the places of the others."""

    low: float
    expected: float
    high: float
    used: tuple[int, ...]
    left_out: tuple[int, ...]


def spread_of(values: Sequence[float], precisions: Sequence[float], shipped: Interval) -> Spread:
    """The value and interval of the runs' values; `shipped` is the constant that they replace."""
    resolution = max(precisions)
    left_out = _far(values, resolution, shipped)
    used = tuple(i for i in range(len(values)) if i not in left_out)
    kept = [values[i] for i in used]
    middle = _median(kept)
    below, above = _distances(middle, shipped)
    reach = max(middle - min(kept), max(kept) - middle)
    if len(kept) < LEAST_FOR_SPREAD:
        ends = [max(reach, distance / 2) for distance in (below, above)]
    else:
        half = _quantile(len(kept) - 1) * _deviation(kept) * math.sqrt(1 + math.pi / 2 / len(kept))
        within = middle - min(kept) <= below and max(kept) - middle <= above
        ends = [min(half, distance) if within else half for distance in (below, above)]
    low, high = (max(end, resolution) for end in ends)
    return Spread(max(0.0, middle - low), middle, middle + high, used, left_out)


def _distances(middle: float, shipped: Interval) -> tuple[float, float]:
    """The shipped constant's distances to its ends, as shares of its value, around another value."""
    low, expected, high = shipped
    scale = middle / expected if expected > 0 else 1.0
    return (expected - low) * scale, (high - expected) * scale


def _far(values: Sequence[float], resolution: float, shipped: Interval) -> tuple[int, ...]:
    if len(values) < LEAST_FOR_SPREAD:
        return ()
    middle = _median(values)
    limit = FAR * max(_median([abs(value - middle) for value in values]), resolution)
    below, above = _distances(middle, shipped) if len(values) < LEAST_FOR_OUTLIERS else (0.0, 0.0)
    return tuple(
        i for i, value in enumerate(values) if abs(value - middle) > max(limit, above if value > middle else below)
    )


def _quantile(freedom: int) -> float:
    return T_95[freedom - 1] if freedom <= len(T_95) else NORMAL_95 + (T_95[-1] - NORMAL_95) * len(T_95) / freedom


def _deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
