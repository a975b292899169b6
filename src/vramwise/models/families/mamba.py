"""Mamba: layers that mix positions by a selective scan; no attention, a state that does not grow."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config

CLASS_DEFAULTS = {
    "vocab_size": 50280,
    "hidden_size": 768,
    "state_size": 16,
    "num_hidden_layers": 32,
    "expand": 2,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "residual_in_fp32": True,
    "time_step_rank": "auto",
    "tie_word_embeddings": True,
}
"""Defaults of `MambaConfig`."""


def embedding(c: Config) -> Block:
    """Token ids -> hidden states."""
    b = BlockBuilder("backbone")
    return b.build(hidden=b.embedding("embeddings", c.vocab_size, c.hidden_size))


def time_step_rank(c: Config) -> int:
    """Width between the two projections of the time step; "auto" is hidden_size / 16, rounded up."""
    return -(-c.hidden_size // 16) if c.get("time_step_rank") == "auto" else c.size("time_step_rank")


def convolved(b: BlockBuilder, c: Config, x: Value) -> Value:
    """A causal convolution over positions, each channel for itself, and its activation."""
    parameters = [b.parameter("mixer.conv1d", "weight", (x.width, 1, c.size("conv_kernel")), shard="column")]
    if c.flag("use_conv_bias"):
        parameters.append(b.parameter("mixer.conv1d", "bias", (x.width,), shard="column"))
    return b.unary("causal_conv1d", x, "mixer.conv1d", parameters, function=c.text("hidden_act"))


def mixer(b: BlockBuilder, c: Config, x: Value) -> Value:
    """out(scan(conv(h), dt, B, C) · act(gate)), where (h, gate) = in(x) and (dt, B, C) are projections of conv(h)."""
    inner, state = int(c.number("expand") * c.hidden_size), c.size("state_size")
    rank, bias = time_step_rank(c), c.flag("use_bias")
    b.part = "mixer"
    h = b.unary("channels_first", b.linear(b.unary("padding_zeroed", x), "mixer.in_proj", 2 * inner, bias=bias))
    h, gate = b.op("halves", "mixer", [h], [inner, inner])
    h = convolved(b, c, h)
    h = b.unary("padding_zeroed", b.unary("channels_last", h))
    pieces = b.linear(h, "mixer.x_proj", rank + 2 * state, shard="row")
    time_step, inward, outward = b.split(pieces, [rank, state, state])
    time_step = b.unary("channels_first", b.linear(time_step, "mixer.dt_proj", inner))
    parameters = [
        b.parameter("mixer.dt_proj", "bias", (inner,), shard="column"),
        b.parameter("mixer", "A_log", (inner, state), shard="column"),
        b.parameter("mixer", "D", (inner,), shard="column"),
    ]
    (h,) = b.op(
        "selective_scan", "mixer", [b.unary("channels_first", h), time_step, inward, outward, gate], [inner], parameters
    )
    b.keep(LayerCache("recurrent", conv_state_elements=inner * c.size("conv_kernel"), state_elements=inner * state))
    h = b.unary("to_parameter_dtype", b.unary("channels_last", h))
    return b.linear(h, "mixer.out_proj", c.hidden_size, bias=bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """Norm and mixer with a residual in fp32 around them, unless `residual_in_fp32` says otherwise."""
    b = BlockBuilder(f"backbone.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary("to_parameter_dtype", x), "norm")
    residual = b.unary("to_fp32", x) if c.flag("residual_in_fp32") else x
    return b.build(hidden=b.add(residual, mixer(b, c, h)))


def head(c: Config) -> Block:
    """Final norm and output projection, whose logits are made fp32."""
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "backbone.norm_f")
    tied_to = "backbone.embeddings.weight" if c.flag("tie_word_embeddings") else None
    x = b.unary("to_parameter_dtype", x)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return b.build(logits=b.unary("to_fp32", logits))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
