"""Lengths of encoder-decoders: `sequence_length` is the encoder's, `decoder_sequence_length` the decoder's.

Without the second both are as long. Of a model with one stack there is one length.
"""

from __future__ import annotations

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
