"""The fullest moment of a layer: a live set, walked over the kernels that an engine runs.

A module's call ends with its row-cut layer or its experts. Python's names keep what it received and made until then,
and what the model handed to the layer until the layer returns. A compiled model has no names: there a tensor may go
when nothing reads it any more, which is the low end.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.records import record
from vramwise.result import Node
from vramwise.serving.common.forward.kernels import (
    EMBEDDINGS,
    GIVEN,
    RESIDUAL,
    Kernels,
    Lowered,
    Pass,
    expert_sizes,
    is_column,
)


@record
class LiveSet:
    """Bytes alive at the fullest moment of a layer, in blocks of the allocator, and the operation that runs then."""

    bytes: int
    moment: str


@of_model
def largest_live_set(
    model: Model, run: Pass, *, named: bool, dense: bool = False, begins: bool = False
) -> LiveSet:  # fmt: skip
    """The fullest moment over the layers from the first with routed experts on, or `dense`: over those before it.

    `named`: with what Python's names keep. `begins`: a dense layer that is alone is the first, whose residual is what
    it is handed.
    """
    layers = list(model.layers())
    first = next((i for i, block in enumerate(layers) if block.has(ExpertMlps)), 0)
    layers = layers[:first] if dense else layers[first:]
    blocks = {tuple((type(op), op.inputs, op.outputs) for op in block.computing): block for block in layers}
    first_only = begins and dense and len(layers) == 1
    found = (fullest(Lowered(block, run), named=named, is_first=first_only) for block in blocks.values())
    return max(found, key=lambda live: live.bytes, default=LiveSet(0, ""))


@of_model
def widest_attention(model: Model, ranks: int) -> int:
    """Values a token of queries, keys and values on one rank, in the layer with most of them."""
    widths = (
        sum(op.outputs[0].width for op in block.computing if is_column(op) and op.parameters[0].part == "attention")
        for block in model.layers()
    )
    return -(-max(widths, default=0) // ranks)


@of_model
def experts_workspace(model: Model, tokens: int, ranks: int, expert_ranks: int, *, fp4: bool = False) -> int:
    """Elements of the two buffers of the layer with the largest routed experts.

    tokens · chosen · (max(inner, hidden) + max(gate and up, hidden)): TritonExperts.workspace_shapes of
    layers/fused_moe, 0.14.1 to 0.33.0. `fp4`: gate and up + max(2 · gate and up, hidden), for CutlassExpertsFp4 takes
    the width of both as that of one.
    """
    sizes = (
        expert_sizes(op, ranks, expert_ranks) for b in model.layers() for op in b.ops if isinstance(op, ExpertMlps)
    )
    buffers = (
        chosen * (first + max(2 * first, hidden) if fp4 else max(inner, hidden) + max(first, hidden))
        for chosen, inner, first, hidden in sizes
    )
    return tokens * max(buffers, default=0)


def fullest(layer: Lowered, *, named: bool, is_first: bool = False) -> LiveSet:
    """The moment with most bytes alive."""
    steps, end = layer.steps, len(layer.steps)
    born = {made: i for i, step in enumerate(steps) for made in step.makes}
    last = _last_uses(layer, born, named=named)
    handed = [GIVEN, RESIDUAL]
    if is_first and layer.is_fused:
        handed, born[GIVEN] = [RESIDUAL], 0  # its norm makes a tensor of its own
    elif not layer.is_fused:
        handed = [EMBEDDINGS, *(value.id for value in layer.block.inputs.values())]
    elif named and layer.run.kernels.keeps_names:
        handed.append(EMBEDDINGS)
    if named:
        last.update(dict.fromkeys(handed, end))
    best = LiveSet(0, "")
    for i, step in enumerate(steps):
        alive = {tensor for tensor, start in born.items() if start <= i <= last[tensor]}
        alive |= {tensor for tensor in handed if i <= last.get(tensor, -1)}
        total = sum(layer.sizes[tensor] for tensor in alive) + step.beside
        if total > best.bytes:
            best = LiveSet(total, step.name)
    return best


def _last_uses(layer: Lowered, born: dict[int, int], *, named: bool) -> dict[int, int]:
    """The step until which each tensor stays."""
    steps, end = layer.steps, len(layer.steps)
    keeps = named and layer.run.kernels.keeps_names
    last = dict(born)
    for i, step in enumerate(steps):
        until = _end_of_call(layer, i) if named and step.is_inside else i
        for tensor in (*step.reads, *step.makes):
            last[tensor] = max(last.get(tensor, 0), i if tensor in layer.unnamed else until)
        if keeps and (step.ends_call or not step.is_inside):
            last.update(dict.fromkeys(step.makes, end))
        if step.frees:
            last.update(dict.fromkeys(step.reads, i))
    for value in layer.block.outputs.values():
        last[layer.root.get(value.id, value.id)] = end
    return last


def _end_of_call(layer: Lowered, start: int) -> int:
    return next((i for i in range(start, len(layer.steps)) if layer.steps[i].ends_call), start)


def eager_layer(model: Model, run: Pass, source: str, at_most: Kernels | None = None) -> Node:
    """The fullest layer of a pass that is not compiled, as Python's names keep it, at least what is to be read.

    `at_most`: the kernels that keep most of those that an engine may run, where no run of it says which it does.
    """
    named = _fullest_layer(model, run, named=True)
    unnamed = _fullest_layer(model, run, named=False)
    high = named if at_most is None else _fullest_layer(model, replace(run, kernels=at_most), named=True)
    return Node(
        "layer", named.bytes, "derived" if at_most is None else "assumed", min(named.bytes, unnamed.bytes),
        max(named.bytes, high.bytes), formula="Σ blocks alive while its fullest operation runs",
        inputs={"tokens": run.tokens, "operation": named.moment, "tensor_parallel_size": run.ranks}, source=source,
    )  # fmt: skip


def _fullest_layer(model: Model, run: Pass, *, named: bool) -> LiveSet:
    """The fuller of the dense layers and those with experts."""
    return max(
        (largest_live_set(model, run, named=named, dense=dense, begins=True) for dense in (False, True)),
        key=lambda live: live.bytes,
    )


def fullest_of(*phases: Node) -> Node:
    """The phase that is expected to take most; each end of the interval is that of the phase that reaches farthest."""
    most = max(phases, key=lambda phase: phase.bytes)
    return replace(most, low=max(phase.low for phase in phases), high=max(phase.high for phase in phases))
