"""The shapes of low-rank adapters (peft 0.21 tuners/lora/layer.py), stated once for states, activations and engines.

beside a linear layer or an embedding     A (rank, inputs), B (outputs, rank), with DoRA a magnitude (outputs)
added to experts that are one tensor      A (ranks of all, inputs), B (outputs, ranks of all), by `ParamWrapper`
"""

from __future__ import annotations

from vramwise.models.blocks import Operation, Parameter
from vramwise.models.operations.chosen_experts import StackedExperts

Shape = tuple[int, ...]


def low_rank_shapes(rank: int, inputs: int, outputs: int, *, groups: int = 1, dora: bool = False) -> tuple[Shape, ...]:
    """A and B, and DoRA's magnitude.

    `groups`: parts of the outputs that read `rank` results of A each (litgpt's `LoRAQKVLinear`, a grouped convolution).
    """
    pair = ((groups * rank, inputs), (outputs, rank))
    return (*pair, (outputs,)) if dora else pair


def adapter_shapes(
    op: Operation, weight: Parameter, rank: int, *, dora: bool = False, by_itself: bool = False
) -> tuple[Shape, ...]:
    """What is added for one weight of an operation.

    Each expert has ranks of its own, and a weight that stands for two linear layers of older checkpoints has those of
    both (peft utils/transformers_weight_conversion.py), unless it was named `by_itself`.
    """
    inputs, outputs = _widths(op, weight)
    if len(weight.shape) == 2:
        return low_rank_shapes(rank, inputs, outputs, dora=dora)
    ranks = rank * weight.shape[0]
    if isinstance(op, StackedExperts) and weight == op.parameters[0] and not by_itself:
        ranks *= op.fused_branches
    return low_rank_shapes(ranks, inputs, outputs)


def shapes_beside_experts(op: StackedExperts, weight: Parameter, rank: int, branches: int) -> tuple[Shape, ...]:
    """A and B of all experts' layers where those are layers of their own: so many of each in a tensor here."""
    inputs, outputs = _widths(op, weight)
    return low_rank_shapes(rank * weight.shape[0], inputs, outputs, groups=branches)


def _widths(op: Operation, weight: Parameter) -> tuple[int, int]:
    """Inputs and outputs of a weight; an embedding maps rows to columns."""
    *_, first, second = weight.shape
    if isinstance(op, StackedExperts) and len(weight.shape) == 3:
        inputs_first = op.transposed
    else:
        inputs_first = op.inputs_first or (weight.part == "embedding" and not weight.is_linear)
    return (first, second) if inputs_first else (second, first)
