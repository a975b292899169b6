"""A root-mean-square norm times a low-rank gate of its own result (AXK 2)."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.gates import SigmoidGate


def gated_norm(b: BlockBuilder, x: Value, module: str, rank: int) -> Value:
    """Root-mean-square norm, times a gate of two products with `rank` columns between them unless that is 0."""
    if not rank:
        return b.rms_norm(x, module)
    y = b.rms_norm(x, f"{module}.norm")
    inner = b.activation(b.linear(y, f"{module}.mlp.fc1", rank, part="norm"), "silu", f"{module}.mlp")
    gate = b.linear(inner, f"{module}.mlp.fc2", x.width, shard="row", part="norm")
    return b.op(SigmoidGate(), module, [y, gate], [x.width])[0]
