"""Mamba 2: one projection for everything, heads that share B and C in groups, a scan over chunks of positions."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.mamba import convolved, embedding, head

CLASS_DEFAULTS = {
    "num_heads": 128,
    "head_dim": 64,
    "vocab_size": 32768,
    "hidden_size": 4096,
    "state_size": 128,
    "num_hidden_layers": 64,
    "expand": 2,
    "conv_kernel": 4,
    "n_groups": 8,
    "use_bias": False,
    "use_conv_bias": True,
    "hidden_act": "silu",
    "residual_in_fp32": True,
    "chunk_size": 256,
    "tie_word_embeddings": False,
}
"""Defaults of `Mamba2Config`."""


def mixer(b: BlockBuilder, c: Config, x: Value) -> Value:
    """out(norm(scan(conv(h, B, C), dt), gate)), where (gate, (h, B, C), dt) = in(x)."""
    heads, groups, state = c.size("num_heads"), c.size("n_groups"), c.size("state_size")
    inner, bias = int(c.number("expand") * c.hidden_size), c.flag("use_bias")
    if inner != heads * c.size("head_dim"):
        raise c.error(f"num_heads · head_dim ({heads * c.size('head_dim')}) is not expand · hidden_size ({inner})")
    if heads % groups or inner % groups:
        raise c.error(f"n_groups ({groups}) does not divide num_heads ({heads})")
    shared = groups * state
    b.part = "mixer"
    projected = b.linear(b.unary("padding_zeroed", x), "mixer.in_proj", 2 * inner + 2 * shared + heads, bias=bias)
    gate, h, time_step = b.split(projected, [inner, inner + 2 * shared, heads])
    h = convolved(b, c, b.unary("channels_first", h))
    h = b.unary("padding_zeroed", b.unary("channels_last", h))
    h, inward, outward = b.split(h, [inner, shared, shared])
    parameters = [b.parameter("mixer", leaf, (heads,), shard="column") for leaf in ("dt_bias", "A_log", "D")]
    (h,) = b.op(
        "chunk_scan", "mixer", [h, inward, outward, time_step], [inner], parameters, num_heads=heads,
        num_groups=groups, chunk_size=c.size("chunk_size"),
    )  # fmt: skip
    conv_state = (inner + 2 * shared) * c.size("conv_kernel")
    b.keep(LayerCache("recurrent", conv_state_elements=conv_state, state_elements=inner * state))
    weight = b.parameter("mixer.norm", "weight", (inner,), part="norm")
    (h,) = b.op("gated_group_norm", "mixer.norm", [h, gate], [inner], [weight], num_groups=groups)
    return b.linear(b.unary("to_parameter_dtype", h), "mixer.out_proj", c.hidden_size, bias=bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """Norm and mixer with a residual in fp32 around them, unless `residual_in_fp32` says otherwise."""
    b = BlockBuilder(f"backbone.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary("to_parameter_dtype", x), "norm")
    residual = b.unary("to_fp32", x) if c.flag("residual_in_fp32") else x
    return b.build(hidden=b.add(residual, mixer(b, c, h)))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
