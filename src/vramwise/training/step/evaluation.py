"""A forward pass without autograd: what it holds at its largest moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.autograd.tensor import ITEM_BYTES
from vramwise.records import record
from vramwise.training.activations.sizes import RunBytes, StepShape
from vramwise.training.recipe.two_lengths import read_by

_TELLING = 2
"""Blocks of one shape that are looked at: the first has nothing embedded beside it, all others are alike."""


@record
class EvaluationPass:
    """Bytes of ids and labels, of autocast's 16-bit weights, and of everything else at its largest, with its place."""

    inputs: int
    casts: int
    temporaries: int
    operation: str


def evaluation_pass(shape: StepShape, runs: Sequence[RunBytes], axes: Axes, *, logits: bool) -> EvaluationPass:
    """Autocast's casts of trained weights pile up, everything else goes after its use.

    `logits`: whether all of them exist at once; the loss then stands beside them and the last hidden states.
    """
    masks, made = evaluate(shape.unsaved_masks, axes), evaluate(shape.logits_in_loss, axes)
    last_hidden = sum(run.last_hidden for run in runs)
    alive, name, embedded = 0, "", 0
    times = Counter[int]()
    for run in runs:
        times[id(run)] += 1
        if times[id(run)] > _TELLING:
            continue
        size = run.unsaved_peak.total
        if run.layer is not None:
            # The frame that calls the layers keeps what went into the first of them.
            size += run.incoming + run.tables + masks + embedded
            embedded = embedded or run.incoming
        elif run.name == "loss":
            size += made + last_hidden if logits else run.incoming
        else:
            size += run.incoming
        if size > alive:
            alive, name = size, run.unsaved_peak.operation
    inputs = ITEM_BYTES["int64"] * axes["batch"] * (read_by(axes) + axes["sequence"])
    return EvaluationPass(inputs, sum(run.casts for run in runs), alive, name)
