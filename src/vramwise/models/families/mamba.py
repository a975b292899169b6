"""Mamba: layers that mix positions by a selective scan; no attention, a state that does not grow."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.hybrid import short_convolution

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


def low_rank(c: Config, key: str = "time_step_rank") -> int:
    """Width between the two projections of the time step; "auto" is hidden_size / 16, rounded up."""
    return -(-c.hidden_size // 16) if c.get(key, "auto") == "auto" else c.size(key)


@dataclass(frozen=True, slots=True)
class Mamba:
    """Sizes and switches of a mixer; `norm`: the style of norms on the time step, B and C, with weights or without."""

    inner: int
    state: int
    rank: int
    kernel: int
    bias: bool
    conv_bias: bool
    function: str
    norm: str = ""


def sizes(c: Config) -> Mamba:
    """The sizes by the keys of Mamba and Falcon Mamba."""
    return Mamba(
        int(c.number("expand") * c.hidden_size), c.size("state_size"), low_rank(c), c.size("conv_kernel"),
        c.flag("use_bias"), c.flag("use_conv_bias"), c.text("hidden_act"),
        "unweighted" if c.model_type == "falcon_mamba" else "",
    )  # fmt: skip


def mixer(b: BlockBuilder, x: Value, s: Mamba, module: str = "mixer") -> Value:
    """out(scan(conv(h), dt, B, C) · act(gate)), where (h, gate) = in(x) and (dt, B, C) are projections of conv(h)."""
    inner, state, rank, width = s.inner, s.state, s.rank, x.width
    b.part = "mixer"
    h = b.unary("channels_first", b.linear(b.unary("padding_zeroed", x), f"{module}.in_proj", 2 * inner, bias=s.bias))
    h, gate = b.op("halves", module, [h], [inner, inner])
    h = short_convolution(b, h, f"{module}.conv1d", s.kernel, function=s.function, bias=s.conv_bias)
    h = b.unary("padding_zeroed", b.unary("channels_last", h))
    pieces = b.linear(h, f"{module}.x_proj", rank + 2 * state, shard="row")
    time_step, inward, outward = b.split(pieces, [rank, state, state])
    if s.norm:
        named = zip(("dt", "b", "c"), (time_step, inward, outward), strict=True)
        time_step, inward, outward = (b.rms_norm(y, f"{module}.{n}_layernorm", style=s.norm) for n, y in named)
    time_step = b.unary("channels_first", b.linear(time_step, f"{module}.dt_proj", inner))
    parameters = [
        b.parameter(f"{module}.dt_proj", "bias", (inner,), shard="column"),
        b.parameter(module, "A_log", (inner, state), shard="column"),
        b.parameter(module, "D", (inner,), shard="column"),
    ]
    (h,) = b.op(
        "selective_scan", module, [b.unary("channels_first", h), time_step, inward, outward, gate], [inner], parameters
    )
    b.keep(LayerCache("recurrent", conv_state_elements=inner * s.kernel, state_elements=inner * state))
    h = b.unary("to_parameter_dtype", b.unary("channels_last", h))
    return b.linear(h, f"{module}.out_proj", width, bias=s.bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """Norm and mixer with a residual in fp32 around them, unless `residual_in_fp32` says otherwise."""
    b = BlockBuilder(f"backbone.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary("to_parameter_dtype", x), "norm")
    residual = b.unary("to_fp32", x) if c.flag("residual_in_fp32") else x
    return b.build(hidden=b.add(residual, mixer(b, h, sizes(c))))


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
