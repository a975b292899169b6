"""SigLIP's MLP and the weights of its attention pooling."""

from __future__ import annotations

from vramwise.models.blocks import BlockBuilder, Parameter, Value
from vramwise.models.config import Config


def mlp(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    """fc2(act(fc1(x)))."""
    h = b.activation(b.linear(x, f"{module}.fc1", c.intermediate_size, bias=True), c.text("hidden_act"))
    return b.linear(h, f"{module}.fc2", x.width, bias=True, shard="row")


def pooling_weights(b: BlockBuilder, width: int) -> list[Parameter]:
    """The probe that asks the patches, and the projections of `nn.MultiheadAttention`."""
    attention = "head.attention"
    return [
        b.parameter("head", "probe", (1, 1, width)),
        b.parameter(attention, "in_proj_weight", (3 * width, width), shard="column"),
        b.parameter(attention, "in_proj_bias", (3 * width,), shard="column"),
        b.parameter(attention, "out_proj.weight", (width, width), shard="row", is_linear=True),
        b.parameter(attention, "out_proj.bias", (width,)),
    ]
