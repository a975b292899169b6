"""Tokens of other ranks' batches that a rank's experts receive, beyond an even share (expert parallelism).

An even share is expected. The fullest rank gets `moe_overload_factor` times as many, which the high end of the interval
counts: what its experts keep for backward, or of one layer where they are computed again,

    (factor - 1) · (micro-batches in flight · kept by experts + the most that one layer's experts have beside it)

Megatron-LM logs the factor (`log_overload_factor`: `max_cum_overload_factor` over a step). Experts that drop tokens
take `moe_capacity_factor` even shares at most. Without expert parallelism every token stays on its rank.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Axes, evaluate
from vramwise.models.model import Model
from vramwise.training.activations.sizes import RunBytes, step_shape
from vramwise.training.layout.parallel import Placement
from vramwise.training.recipe.two_lengths import read_by
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.step.micro_batches import on_stage

ASSUMED_FACTOR = 1.5
"""Nobody publishes it: a router with a balancing loss keeps its fullest rank below one and a half even shares."""


def overload_factor(model: Model, train: ResolvedTrain) -> float:
    """Even shares of tokens that the fullest rank may get; 1 where experts are not spread over ranks."""
    if train.expert_parallel_size == 1 or all(p.part != "experts" for p in model.parameters):
        return 1.0
    factor = min(train.moe_overload_factor or ASSUMED_FACTOR, train.expert_parallel_size)  # all tokens of all ranks
    return max(1.0, min(factor, train.moe_capacity_factor or factor))


def overload_bytes(model: Model, train: ResolvedTrain, placement: Placement, axes: Axes, *, accumulating: bool) -> int:
    """What the fullest rank needs beyond an even share of tokens."""
    factor = overload_factor(model, train)
    if factor == 1:
        return 0

    def kept(settings: ResolvedTrain) -> list[int]:
        sizes = axes["batch"], read_by(axes)
        shape = step_shape(model, settings, *sizes, accumulating=accumulating)
        return [_kept_by_experts(run, axes) for run in on_stage(shape.at(axes), placement)]

    own = kept(train)
    whole = own if train.checkpointing == "none" else kept(train.replace(checkpointing="none", recompute=()))
    again = max((full - left for full, left in zip(whole, own, strict=True)), default=0)
    return round((factor - 1) * (float(placement.micro_batches_in_flight) * sum(own) + again))


def _kept_by_experts(run: RunBytes, axes: Axes) -> int:
    return sum(
        evaluate(tensor.nbytes, axes) * tensor.count
        for tensor in run.kept
        if tensor.module.rpartition(".")[2] == "experts"
    )
