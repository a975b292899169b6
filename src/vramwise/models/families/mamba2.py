"""Mamba 2: one projection for everything, heads that share B and C in groups, a scan over chunks of positions."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.mamba import embedding, head
from vramwise.models.layers.hybrid import short_convolution

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


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Sizes and switches of a mixer.

    `scaled`: the input times a number, and the projection's result times a buffer (Falcon H1); `norm`: how the scan's
    result meets the gate.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    chunk: int
    bias: bool = False
    out_bias: bool = False
    conv_bias: bool = True
    function: str = "silu"
    scaled: bool = False
    norm: str = "gated_group_norm"

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim


def checked(c: Config, s: Mamba2, inner: int | None = None) -> Mamba2:
    """Refuses groups that do not divide the heads, and heads that do not make up the inner width."""
    if inner is not None and inner != s.inner:
        raise c.error(f"num_heads · head_dim ({s.inner}) is not expand · hidden_size ({inner})")
    if s.heads % s.groups:
        raise c.error(f"n_groups ({s.groups}) does not divide num_heads ({s.heads})")
    return s


def sizes(c: Config) -> Mamba2:
    bias = c.flag("use_bias")
    s = Mamba2(
        c.size("num_heads"), c.size("head_dim"), c.size("n_groups"), c.size("state_size"), c.size("conv_kernel"),
        c.size("chunk_size"), bias, bias, c.flag("use_conv_bias"), c.text("hidden_act"),
    )  # fmt: skip
    return checked(c, s, int(c.number("expand") * c.hidden_size))


def mixer(b: BlockBuilder, x: Value, s: Mamba2, module: str = "mixer") -> Value:
    """out(norm(scan(conv(h, B, C), dt), gate)), where (gate, (h, B, C), dt) = in(x)."""
    heads, inner, shared, width = s.heads, s.inner, s.groups * s.state, x.width
    b.part = "mixer"
    x = b.unary("padding_zeroed", x)
    x = b.scale(x) if s.scaled else x
    projected = b.linear(x, f"{module}.in_proj", 2 * inner + 2 * shared + heads, bias=s.bias)
    projected = b.unary("scale_by_vector", projected, module) if s.scaled else projected
    gate, h, time_step = b.split(projected, [inner, inner + 2 * shared, heads])
    h = b.unary("channels_first", h)
    h = short_convolution(b, h, f"{module}.conv1d", s.kernel, function=s.function, bias=s.conv_bias)
    h = b.unary("padding_zeroed", b.unary("channels_last", h))
    h, inward, outward = b.split(h, [inner, shared, shared])
    parameters = [b.parameter(module, leaf, (heads,), shard="column") for leaf in ("dt_bias", "A_log", "D")]
    (h,) = b.op(
        "chunk_scan", module, [h, inward, outward, time_step], [inner], parameters, num_heads=heads,
        num_groups=s.groups, chunk_size=s.chunk,
    )  # fmt: skip
    conv_state = (inner + 2 * shared) * s.kernel
    b.keep(LayerCache("recurrent", conv_state_elements=conv_state, state_elements=inner * s.state))
    if s.norm:
        weight = b.parameter(f"{module}.norm", "weight", (inner,), part="norm")
        (h,) = b.op(s.norm, f"{module}.norm", [h, gate], [inner], [weight], num_groups=s.groups)
    else:
        h = b.multiply(h, b.activation(gate, "silu", module))
    return b.linear(b.unary("to_parameter_dtype", h), f"{module}.out_proj", width, bias=s.out_bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """Norm and mixer with a residual in fp32 around them, unless `residual_in_fp32` says otherwise."""
    b = BlockBuilder(f"backbone.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(b.unary("to_parameter_dtype", x), "norm")
    residual = b.unary("to_fp32", x) if c.flag("residual_in_fp32") else x
    return b.build(hidden=b.add(residual, mixer(b, h, sizes(c))))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = config.filled(CLASS_DEFAULTS)
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
