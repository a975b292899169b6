"""How long padded rows get where `sample_lengths` says mean, spread and maximum of the samples.

Lengths are taken as lognormal with that mean and standard deviation, cut at the longest row. A row is as long as the
longest sample of its micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

RECORDS = 4  # of 30 lengths in random order so many are longer than all before them (1 + 1/2 + … + 1/30)
_POINTS = 64  # at which a mean is taken
_NEAREST_TO_ONE = math.nextafter(1.0, 0.0)


def record_lengths(limit: int, samples: Mapping[str, int] | None, rows: int) -> tuple[int, ...]:
    """Rows that are longer than all before them, the last as long as any: what lies above halves from one to the next.

    Where nothing but the limit is known, any length is as likely as any other.
    """
    shares = [0.5**k for k in range(1, RECORDS)]
    if not has_spread(samples):
        return (*(max(1, limit - int(limit * share)) for share in shares), limit)
    return (*(min(limit, row) for row in _rows_above(samples, rows, tuple(shares))), limit)


def usual_length(limit: int, samples: Mapping[str, int] | None, rows: int) -> int:
    """Tokens of a row on average; without a spread every row is as long as the mean."""
    if not samples or "mean" not in samples:
        return limit
    if not has_spread(samples):
        return min(limit, samples["mean"])
    shares = tuple((k + 0.5) / _POINTS for k in range(_POINTS))
    return max(1, round(sum(min(limit, row) for row in _rows_above(samples, rows, shares)) / _POINTS))


def has_spread(samples: Mapping[str, int] | None) -> bool:
    """Whether it is said how lengths differ."""
    return bool(samples and samples.get("mean") and samples.get("spread"))


def _rows_above(samples: Mapping[str, int] | None, rows: int, shares: tuple[float, ...]) -> tuple[int, ...]:
    """Lengths that so large shares of all rows exceed."""
    known = samples or {}
    return _quantiles(known["mean"], known["spread"], rows, shares)


@lru_cache(maxsize=256)
def _quantiles(mean: int, spread: int, rows: int, shares: tuple[float, ...]) -> tuple[int, ...]:
    from statistics import NormalDist  # no estimate without such lengths needs it

    variance = math.log1p((spread / mean) ** 2)
    of_logarithms = NormalDist(math.log(mean) - variance / 2, math.sqrt(variance))
    longest = (min((1 - share) ** (1 / rows), _NEAREST_TO_ONE) for share in shares)
    return tuple(max(1, round(math.exp(of_logarithms.inv_cdf(one)))) for one in longest)
