"""Gated DeltaNet (arXiv 2412.06464): a matrix for every head that each token corrects; a state that does not grow."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.operations.delta_rule import DeltaPieces, GatedDeltaRule, GatedHeadNorm
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, PaddingZeroed
from vramwise.models.operations.simple import Concatenate
from vramwise.records import record

CHUNK = 64
"""Positions that the rule works through at once (transformers 5.23, `torch_chunk_gated_delta_rule`)."""


@record
class DeltaNet:
    """Sizes: key heads serve value heads in groups; `kernel` is the convolution's length, `gate` that of the result,
    `widened`: whose norm has its weight in fp32."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    function: str
    gate: str = "silu"
    widened: bool = False

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim


def sizes(c: Config) -> DeltaNet:
    """The sizes by the keys that the families share."""
    s = DeltaNet(
        c.size("linear_num_key_heads"), c.size("linear_num_value_heads"), c.size("linear_key_head_dim"),
        c.size("linear_value_head_dim"), c.size("linear_conv_kernel_dim"), c.text("hidden_act", "silu"),
    )  # fmt: skip
    if s.value_heads % s.key_heads:
        raise c.error(f"linear_num_key_heads ({s.key_heads}) does not divide linear_num_value_heads ({s.value_heads})")
    return s


def mixer(b: BlockBuilder, x: Value, s: DeltaNet, *, fused: bool, module: str = "linear_attn") -> Value:
    """out(norm(rule(conv(q, k, v), b, a)) · silu(z)); `fused`: q, k, v, z come by key head from one product."""
    b.part = "mixer"
    x, hidden_size = b.unary(PaddingZeroed(), x), x.width
    width = 2 * s.keys + s.values
    if fused:
        joint = b.linear(x, f"{module}.in_proj_qkvz", width + s.values)
        gates = b.linear(x, f"{module}.in_proj_ba", 2 * s.value_heads)
        qkv, z, beta, decay = b.op(
            DeltaPieces(key_heads=s.key_heads, key_dim=s.key_dim),
            module,
            [joint, gates],
            [width, s.values, s.value_heads, s.value_heads],
        )
    else:
        qkv = b.linear(x, f"{module}.in_proj_qkv", width)
        z = b.linear(x, f"{module}.in_proj_z", s.values)
        beta, decay = (b.linear(x, f"{module}.in_proj_{n}", s.value_heads) for n in "ba")
    h = short_convolution(b, b.unary(ChannelsFirst(), qkv), f"{module}.conv1d", s.kernel, function=s.function)
    q, k, v = b.split(b.unary(ChannelsLast(), h), [s.keys, s.keys, s.values])
    mixed = rule(b, (q, k, v, beta, decay), s, module)
    weight = b.parameter(f"{module}.norm", "weight", (s.value_dim,), part="norm")
    norm = GatedHeadNorm(function=s.gate, widened=s.widened)
    (mixed,) = b.op(norm, f"{module}.norm", [mixed, z], [s.values], [weight])
    return b.linear(mixed, f"{module}.out_proj", hidden_size, shard="row")


def mixer_of_pieces(b: BlockBuilder, x: Value, s: DeltaNet, *, doubled: bool) -> Value:
    """out(norm(rule(conv(q, k, v), b, a)) · silu(g)), each of them from a product of its own (OLMo hybrid)."""
    module, hidden_size = "linear_attn", x.width
    b.part = "mixer"
    x = b.unary(PaddingZeroed(), x)
    pieces = [b.linear(x, f"{module}.{name}_proj", s.values if name == "v" else s.keys) for name in "qkv"]
    (joint,) = b.op(Concatenate(), module, pieces, [2 * s.keys + s.values])
    h = short_convolution(b, b.unary(ChannelsFirst(), joint), f"{module}.conv1d", s.kernel, function=s.function)
    q, k, v = b.split(b.unary(ChannelsLast(), h), [s.keys, s.keys, s.values])
    beta, decay, gate = (
        b.linear(x, f"{module}.{name}_proj", s.values if name == "g" else s.value_heads) for name in "bag"
    )
    mixed = rule(b, (q, k, v, beta, decay), s, module, doubled=doubled)
    weight = b.parameter(f"{module}.o_norm", "weight", (s.value_dim,), part="norm")
    (mixed,) = b.op(GatedHeadNorm(), f"{module}.o_norm", [mixed, gate], [s.values], [weight])
    return b.linear(mixed, f"{module}.o_proj", hidden_size, shard="row")


def rule(b: BlockBuilder, inputs: tuple[Value, ...], s: DeltaNet, module: str, *, doubled: bool = False) -> Value:
    """The gated delta rule on q, k, v, and what makes beta and the decay; keeps the layer's states.

    `doubled`: beta is up to 2, which lets states turn around (negative eigenvalues).
    """
    parameters = [b.parameter(module, leaf, (s.value_heads,), shard="column") for leaf in ("dt_bias", "A_log")]
    conv = (2 * s.keys + s.values) * s.kernel
    b.keep(LayerCache("recurrent", conv_state_elements=conv, state_elements=s.values * s.key_dim))
    return b.op(
        GatedDeltaRule(key_heads=s.key_heads, value_heads=s.value_heads, chunk_size=CHUNK, doubled=doubled),
        module,
        inputs,
        [s.values],
        parameters,
    )[0]
