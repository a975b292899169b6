"""How long the rows of a batch get: sequences of encoder-decoders, and padded rows of samples of several lengths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from vramwise.models.autograd.size import Axes, RoundedAxes, with_rounded_axes
from vramwise.models.model import Model
from vramwise.training.resolved import ResolvedTrain

SEQ2SEQ = "seq2seq-lm"


def has_two_lengths(model: Model, train: ResolvedTrain) -> bool:
    """Whether encoder and decoder have each a length of its own."""
    return train.decoder_sequence_length is not None and model.head == SEQ2SEQ


def lengths(model: Model, train: ResolvedTrain, sequence: int) -> tuple[int, int | None]:
    """Tokens of the decoder or of the only stack, and of the encoder where it has a length of its own."""
    if train.decoder_sequence_length is None or not has_two_lengths(model, train):
        return sequence, None
    return -(-train.decoder_sequence_length // train.context_parallel_size), sequence


def read_by(axes: Axes) -> Any:
    """Tokens of a row that the encoder, or the only stack, reads."""
    return axes.get("source", axes["sequence"])


def step_axes(model: Model, train: ResolvedTrain, batch: int, sequence: int, **more: int) -> RoundedAxes:
    """The axes of a micro-batch whose encoder, or only stack, reads `sequence` tokens of each row."""
    tokens, source = lengths(model, train, sequence)
    if source is not None:
        more["source"] = source
    return with_rounded_axes(batch=batch, sequence=tokens, **more)


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
