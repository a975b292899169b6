"""Gemma 3n's MLP, which in some layers keeps only the largest of its gates."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.streams import GaussianTop


def sparsities(c: Config) -> list[bool]:
    """Whether the MLP of each layer keeps only the largest of its gates."""
    layers = c.num_hidden_layers
    default = [0.95] * 10 + [0.0] * (layers - 10) if layers > 10 else [0.0] * layers
    return [share > 0 for share in c.by_layer("activation_sparsity_pattern", empty_is_absent=True) or default]


def mlp(b: BlockBuilder, x: Value, width: int, function: str, sparse: bool) -> Value:
    """down(act(gate(x)) · up(x)), where a sparse layer's gates are zero below a quantile of a normal distribution."""
    b.part = "mlp"
    gate = b.linear(x, "mlp.gate_proj", width)
    gate = b.activation(b.unary(GaussianTop(), gate, "mlp") if sparse else gate, function, "mlp.act_fn")
    h = b.multiply(gate, b.linear(x, "mlp.up_proj", width))
    return b.linear(h, "mlp.down_proj", x.width, shard="row")
