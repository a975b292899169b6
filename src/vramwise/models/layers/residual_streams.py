"""Several residual streams side by side: what a half of a layer reads of them, and how they take its result."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.residual_streams import MixedStreams, StreamNorm


def mixed_input(b: BlockBuilder, x: Value, c: Config, module: str) -> tuple[Value, Value]:
    """The streams' weighted mean, and their norm."""
    b.part, streams, rank = "mixer", c.size("hc_count"), c.size("hc_lowrank")
    weight = b.parameter(f"{module}.hc_norm", "weight", (x.width,), part="norm")
    normed = b.unary(StreamNorm(streams=streams), x, f"{module}.hc_norm", [weight])
    low = b.scale(b.linear(normed, f"{module}.input_mix_weight_down", rank, shard="row"))
    up = b.linear(b.activation(low, "silu", module), f"{module}.input_mix_weight_up", x.width)
    weights = b.activation(up, "sigmoid", module)
    return b.op(MixedStreams(streams=streams), module, [weights, normed], [x.width // streams])[0], normed


def half(b: BlockBuilder, x: Value, c: Config, module: str) -> tuple[Value, Value]:
    """What attention or the experts read, and the weights with which each stream takes their result."""
    mixed, normed = mixed_input(b, x, c, module)
    raw = b.linear(normed, f"{module}.block_inject_weight", c.size("hc_count"), shard="replicated")
    return mixed, b.scale(b.activation(b.scale(raw), "sigmoid", module))
