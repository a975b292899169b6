"""Largest set of tensors alive in one layer of an inference forward pass, in elements a token.

Walks a block's operations in order: every operation makes its output, views make nothing, a tensor goes when
nothing reads it any more. What a Python frame still names stays: the block's input, the residual, and a norm's
output until the next residual sum.
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.models import Block, Model, Operation
from vramwise.models.blocks import Value
from vramwise.models.operations.attention import AnyRotary
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.latent import Cached
from vramwise.models.operations.norms import LayerNorm, RmsNorm
from vramwise.models.operations.simple import Add, Heads, HeadsFirst, Split
from vramwise.records import record

_VIEWS = Heads | HeadsFirst | Split | Cached
_NORMS = RmsNorm | LayerNorm


@record
class LiveSet:
    """Elements a token alive at the fullest moment of a layer, and the operation that is running then."""

    elements: int
    moment: str


@lru_cache(maxsize=512)
def forward_live_set(model: Model) -> LiveSet:
    """The fullest moment over all layers, embeddings and layer input included."""
    seen: dict[tuple[object, ...], LiveSet] = {}
    for block in model.layers():
        key = tuple((type(op), op.inputs, op.outputs) for op in block.computing)
        if key not in seen:
            seen[key] = _largest(block)
    best = max(seen.values(), key=lambda live: live.elements, default=LiveSet(0, ""))
    # the embeddings' output stays named by the model's own frame
    return LiveSet(best.elements + model.hidden_size, best.moment)


def block_live_set(block: Block, ranks: int = 1) -> int:
    """Elements a token at the fullest moment of one block, on one of `ranks` ranks of tensor parallelism.

    What a column-cut layer makes, and all that is worked out from it alone, is cut; what a row-cut one makes is whole.
    """
    return _largest(block, ranks).elements


def _largest(block: Block, ranks: int = 1) -> LiveSet:
    root: dict[int, int] = {}
    cut: set[int] = set()
    sizes: dict[int, int] = {}
    reads: dict[int, int] = {}
    frames: list[int] = []
    for value in block.inputs.values():
        root[value.id], sizes[value.id] = value.id, value.width * value.places
        frames.append(value.id)
    for op in block.computing:
        _trace(op, root, sizes)
        if ranks > 1 and _is_cut(op, root, cut):
            for value in op.outputs:
                if root[value.id] == value.id:
                    cut.add(value.id)
                    sizes[value.id] = -(-sizes[value.id] // ranks)
        for value in op.inputs:
            reads[root[value.id]] = reads.get(root[value.id], 0) + 1
    ends = {root[value.id] for value in block.outputs.values()}
    alive = set(frames)
    held: set[int] = set()
    best = LiveSet(0, "")
    for op in block.computing:
        made = {root[value.id] for value in op.outputs}
        alive |= made
        total = sum(sizes[i] for i in alive | held) + _inside(op)
        if total > best.elements:
            best = LiveSet(total, op.module or type(op).__name__)
        if isinstance(op, _NORMS):
            held |= made
        elif isinstance(op, Add):
            held.clear()
        for value in op.inputs:
            reads[root[value.id]] -= 1
            if not reads[root[value.id]] and root[value.id] not in ends and root[value.id] not in frames:
                alive.discard(root[value.id])
    return best


def _is_cut(op: Operation, root: dict[int, int], cut: set[int]) -> bool:
    """Whether each rank makes its share of the outputs only."""
    shards = {parameter.shard for parameter in op.parameters}
    if "column" in shards:
        return True
    if shards & {"row", "vocab"} or isinstance(op, Add):
        return False
    return bool(op.inputs) and root[op.inputs[0].id] in cut


def _trace(op: Operation, root: dict[int, int], sizes: dict[int, int]) -> None:
    """Where each output lives: in its source's tensor for views, else in one of its own."""
    for place, value in enumerate(op.outputs):
        source = op.inputs[min(place, len(op.inputs) - 1)] if op.inputs else None
        if isinstance(op, _VIEWS) and source is not None:
            root[value.id] = root[source.id]
            continue
        root[value.id] = value.id
        sizes[value.id] = _elements(op, value, sizes[root[source.id]] if source is not None else 0)


def _elements(op: Operation, value: Value, source: int) -> int:
    """Elements a token of an output; values seen as heads carry a head's width only."""
    if isinstance(op, AnyRotary) or (isinstance(op, _NORMS) and source > value.width):
        return source
    return value.width * value.places


def _inside(op: Operation) -> int:
    """Elements that an operation holds while it runs: routed experts keep their chosen tokens' gate and up."""
    if not isinstance(op, ExpertMlps):
        return 0
    chosen, count = op.experts_per_token, op.num_experts
    widest = max((p.shape[-2] * p.shape[-1] for p in op.parameters if len(p.shape) == 3), default=0)
    hidden = op.inputs[0].width
    # one expert at a time: its share of the tokens, at (hidden + 1.5 · fused gate and up)
    return -(-chosen * (hidden + widest // hidden * 3 // 2) // count) if hidden else 0
