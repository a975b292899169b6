"""Inkling 2's attention: clipped heads, taps of each token's own, a bias by distance, sinks and gates."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.inkling_attention import convolution
from vramwise.models.operations.inkling import DistanceBias
from vramwise.models.operations.inkling2 import (
    BothByPosition,
    Clipped,
    DistanceSinkAttention,
    DynamicConvolution,
    Fp32SigmoidGate,
    UnweightedFp32,
)


def convolved(b: BlockBuilder, x: Value, source: Value, c: Config, slides: bool, module: str, groups: int) -> Value:
    """Keys or values after a short convolution, whose taps full layers make for each token."""
    kernel = c.size("conv_kernel_size")
    if slides:
        return convolution(b, x, c, module, scaled=True)
    b.keep(LayerCache("recurrent", state_elements=x.width * kernel))  # the last inputs, in fp32
    taps = [
        b.parameter(module, "static_weight", (kernel, x.width), part="mixer"),
        b.parameter(f"{module}.weight_proj", "weight", (groups * kernel, source.width), part="mixer", is_linear=True),
    ]
    return b.op(DynamicConvolution(num_heads=groups, kernel=kernel), module, [x, source], [x.width], taps)[0]


def attention(b: BlockBuilder, sources: tuple[Value, ...], c: Config, slides: bool) -> Value:
    """Clipped queries and keys, normed values, a bias by distance, sinks and gates from each token."""
    b.part, place, x = "attention", "swa_" if slides else "", sources[0]
    d, heads = c.size(f"{place}head_dim"), c.size(f"{place}num_attention_heads")
    groups, window = c.size(f"{place}num_key_value_heads"), c.size("sliding_window_size") if slides else None
    if heads % groups:
        raise c.error(f"{place}num_key_value_heads ({groups}) does not divide {place}num_attention_heads ({heads})")
    q = b.heads(b.linear(x, "self_attn.q_proj", heads * d), heads)
    k, v = (
        convolved(
            b, b.linear(source, f"self_attn.{n}_proj", groups * d), source, c, slides, f"self_attn.{n}_sconv", groups
        )
        for n, source in zip("kv", sources[1:], strict=True)
    )
    near = b.heads(b.linear(x, "self_attn.r_proj", heads * c.size("d_rel")), heads)
    gate, sinks = b.linear(x, "self_attn.gate_proj", heads * d), b.linear(x, "self_attn.sink_proj", heads)
    scales = [b.parameter(f"self_attn.{n}_l2_clip", "scale", (heads, w)) for n, w in (("q", d), ("rel", near.width))]
    q = b.unary(Clipped(), q, "self_attn.q_l2_clip", scales[:1])
    k = b.heads_first(b.unary(Clipped(), b.heads(k, groups), "self_attn.k_l2_clip"))
    v = b.heads_first(b.unary(UnweightedFp32(), b.heads(v, groups), "self_attn.v_norm"))
    near = b.unary(Clipped(), near, "self_attn.rel_l2_clip", scales[1:])
    if not slides:
        q, near = b.op(BothByPosition(), "self_attn", [q, near], [d, near.width])
    profiles = b.parameter("self_attn.rel_logits_proj", "proj", (near.width, window or c.size("rel_extent")))
    bias = b.unary(DistanceBias(), near, "self_attn.rel_logits_proj", [profiles])
    b.keep(LayerCache("sliding" if slides else "full", groups, d, d, window=window))
    mixed = b.op(
        DistanceSinkAttention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=True,
            window=window,
            dropout=c.number("attention_dropout"),
        ),
        "self_attn",
        [b.heads_first(q), k, v, bias, sinks],
        [heads * d],
    )[0]
    mixed = b.op(Fp32SigmoidGate(), "self_attn", [mixed, gate], [mixed.width])[0]
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")
