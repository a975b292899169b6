"""Inkling's attention: short convolutions of keys and values, biases by distance in place of rotary positions."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.inkling import DISTANCE, BothByLogPosition, DistanceBias, ResidualConvolution


def convolution(b: BlockBuilder, x: Value, c: Config, module: str, *, scaled: bool = False) -> Value:
    """A short causal convolution of every column, added to its input, in Inkling 2 times a number."""
    kernel = c.size("conv_kernel_size")
    weight = b.parameter(f"{module}.conv1d", "weight", (x.width, 1, kernel), part="mixer")
    b.keep(LayerCache("recurrent", state_elements=x.width * kernel))  # the last inputs, in fp32
    return b.unary(ResidualConvolution(scaled=scaled), x, module, [weight])


def attention(b: BlockBuilder, x: Value, c: Config, slides: bool) -> Value:
    """Convolved keys and values, normed heads, a bias for every distance from each token's own columns."""
    b.part, place = "attention", "swa_" if slides else ""
    d, heads = c.size(f"{place}head_dim"), c.size(f"{place}num_attention_heads")
    groups, window = c.size(f"{place}num_key_value_heads"), c.size("sliding_window_size") if slides else None
    if heads % groups:
        raise c.error(f"{place}num_key_value_heads ({groups}) does not divide {place}num_attention_heads ({heads})")
    q = b.linear(x, "self_attn.q_proj", heads * d)
    k = convolution(b, b.linear(x, "self_attn.k_proj", groups * d), c, "self_attn.k_sconv")
    v = convolution(b, b.linear(x, "self_attn.v_proj", groups * d), c, "self_attn.v_sconv")
    relative = b.heads(b.linear(x, "self_attn.r_proj", heads * c.size("d_rel")), heads)
    q = b.heads_first(b.rms_norm(b.heads(q, heads), "self_attn.q_norm"))
    k = b.heads_first(b.rms_norm(b.heads(k, groups), "self_attn.k_norm"))
    profiles = b.parameter("self_attn.rel_logits_proj", "proj", (relative.width, window or c.size("rel_extent")))
    bias = b.unary(DistanceBias(), relative, "self_attn.rel_logits_proj", [profiles])
    if not slides and c.has("log_scaling_n_floor"):
        q, bias = b.op(BothByLogPosition(), "self_attn", [q, bias], [d, bias.width])
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            window=window,
            dropout=c.number("attention_dropout"),
            style=DISTANCE,
        ),
        q,
        k,
        b.heads_first(b.heads(v, groups)),
        others=[bias],
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")
