"""Mamba 2's mixer (arXiv 2405.21060): one projection for everything, heads that share B and C in groups, a scan."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.operations.chunk_scan import ChunkScan, GatedGroupNorm, GroupedNorm, ScaleByVector
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, PaddingZeroed
from vramwise.models.operations.simple import ToParameterDtype
from vramwise.records import record

# Of the configuration classes of Bamba and Granite 4 (transformers 5.23).
DEFAULTS = {
    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "mamba_chunk_size": 256, "mamba_conv_bias": True,
}  # fmt: skip


@record
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
    norm: type[GroupedNorm] | None = GatedGroupNorm

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


def sizes(c: Config, inner: int) -> Mamba2:
    """The sizes by the keys that hybrids share; a head's width of "auto" follows from the inner width."""
    heads, bias = c.size("mamba_n_heads"), c.flag("mamba_proj_bias")
    width = inner // heads if c.get("mamba_d_head", "auto") == "auto" else c.size("mamba_d_head")
    s = Mamba2(
        heads, width, c.size("mamba_n_groups"), c.size("mamba_d_state"), c.size("mamba_d_conv"),
        c.size("mamba_chunk_size"), bias, bias, c.flag("mamba_conv_bias"), c.text("hidden_act"),
    )  # fmt: skip
    return checked(c, s, inner)


def mixer(b: BlockBuilder, x: Value, s: Mamba2, module: str = "mixer") -> Value:
    """out(norm(scan(conv(h, B, C), dt), gate)), where (gate, (h, B, C), dt) = in(x)."""
    heads, inner, shared, width = s.heads, s.inner, s.groups * s.state, x.width
    b.part = "mixer"
    x = b.unary(PaddingZeroed(), x)
    x = b.scale(x) if s.scaled else x
    projected = b.linear(x, f"{module}.in_proj", 2 * inner + 2 * shared + heads, bias=s.bias)
    projected = b.unary(ScaleByVector(), projected, module) if s.scaled else projected
    gate, h, time_step = b.split(projected, [inner, inner + 2 * shared, heads])
    h = b.unary(ChannelsFirst(), h)
    h = short_convolution(b, h, f"{module}.conv1d", s.kernel, function=s.function, bias=s.conv_bias)
    convolved = h = b.unary(PaddingZeroed(), b.unary(ChannelsLast(), h))
    h, inward, outward = b.split(h, [inner, shared, shared])
    parameters = [b.parameter(module, leaf, (heads,), shard="column") for leaf in ("dt_bias", "A_log", "D")]
    (h,) = b.op(
        ChunkScan(num_heads=heads, num_groups=s.groups, chunk_size=s.chunk),
        module,
        [h, inward, outward, time_step],
        [inner],
        parameters,
    )
    conv_state = (inner + 2 * shared) * s.kernel
    b.keep(LayerCache("recurrent", conv_state_elements=conv_state, state_elements=inner * s.state))
    if s.norm is not None:
        weight = b.parameter(f"{module}.norm", "weight", (inner,), part="norm")
        (h,) = b.op(s.norm(num_groups=s.groups), f"{module}.norm", [h, gate], [inner], [weight])
    else:
        h = b.multiply(h, b.activation(gate, "silu", module))
    out = b.linear(b.unary(ToParameterDtype(), h), f"{module}.out_proj", width, bias=s.out_bias, shard="row")
    b.still_named_in(module, gate, convolved, h)
    return out
