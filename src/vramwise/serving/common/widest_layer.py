"""The widest layer of a forward pass, as engines run it: elements a token of its inner tensors."""

from __future__ import annotations

from functools import lru_cache

from vramwise.models import Block, Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.simple import Conv1dLinear, Linear


@lru_cache(maxsize=1024)
def widest_layer(model: Model, ranks: int, expert_ranks: int = 1) -> int:
    """Elements a token of the widest layer's inner tensors on one rank, besides hidden-size ones.

    Dense MLP: fused gate and up with their product (3·I for a gated one). Experts (fused_experts of
    layers/fused_moe): chosen · (product + max(gate and up, output)).
    """
    return max((_inner(block, ranks, expert_ranks) for block in model.layers()), default=0)


def _inner(block: Block, ranks: int, expert_ranks: int) -> int:
    best = 0
    made: dict[int, int] = {}
    for op in block.ops:
        if isinstance(op, ExpertMlps):
            hidden, chosen = op.inputs[0].width, op.experts_per_token
            inner = op.inner_width // (1 if expert_ranks > 1 else ranks)
            best = max(best, chosen * (inner + max(2 * inner, hidden)))
        elif isinstance(op, Linear | Conv1dLinear) and op.parameters and op.parameters[0].part == "mlp":
            source = op.inputs[0]
            if op.parameters[0].shard == "column":
                made[source.id] = made.get(source.id, 0) + op.outputs[0].width
            else:
                best = max(best, -(-(max(made.values(), default=0) + source.width) // ranks))
                made = {}
    return best
