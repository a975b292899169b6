"""Decoders with experts chosen by sigmoid scores whose attention is gated by the layer's input: AFMoE, Laguna."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_attention import attention
from vramwise.models.layers.design import Design, HeadNorm
from vramwise.models.layers.mixture import Parts, sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.windows import every, typed_layers


def afmoe(c: Config, count: int | None) -> Parts:
    shared = c.size("moe_intermediate_size") * c.size("num_shared_experts", default=2)
    m = corrected(c, count, shared=shared, router="mlp.router.gate")
    bias, num_experts = c.flag("attention_bias"), m.experts.num_experts
    s = Design(
        norm_style="fp32-product", qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads", style="fp32-product"),
        norms=("input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
        gate=("gate_proj", "sigmoid"), scaled_embedding=c.flag("mup_enabled"),
    )  # fmt: skip
    kinds = typed_layers(c, every(c, c.size("global_attn_every_n_layers", default=4)), unturned="full_attention")
    dense = c.size("num_dense_layers", default=1, least=0)
    return s, replace(m, correction=("mlp", "expert_bias", (num_experts,))), sparse_layers(c, dense), kinds


def laguna(c: Config, count: int | None) -> Parts:
    """Number of query heads and turned share of them differ by layer; attention is gated by head or by element."""
    bias, gating = c.flag("attention_bias"), c.get("gating", True)
    function = "softplus_by_head" if gating is True or gating == "per-head" else "softplus"
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"), joined=True, gate=("g_proj", function))
    shared = c.size("shared_expert_intermediate_size", default=512)
    capped = c.number("moe_router_logit_softcapping") > 0
    m = corrected(c, count, shared=shared, epsilon=False, scaled=False, cast=True, capped=capped)
    m = replace(m, scaled=True, correction=("mlp.gate", "e_score_correction_bias", (m.experts.num_experts,)))
    types = c.layer_types() or ["full_attention"] * c.num_hidden_layers
    heads = c.items("num_attention_heads_per_layer") or [c.num_attention_heads] * len(types)
    if len(heads) < len(types):
        raise c.error(f"num_attention_heads_per_layer names {len(heads)} layers, num_hidden_layers is {len(types)}")
    shares = {"full_attention": 0.5, "sliding_attention": 1.0}
    rope = c.table("rope_parameters")
    kinds = []
    for index, kind in enumerate(typed_layers(c, types, tables=True)):
        own = (rope.get(types[index]) if rope else None) or {"partial_rotary_factor": shares.get(types[index], 1.0)}
        values = {
            **c.values,
            "num_attention_heads": heads[index],
            "rope_parameters": {"partial_rotary_factor": 1.0, **own},
        }
        built = partial(attention, c=Config(values, c.model_id), s=s, kind=kind)
        kinds.append(replace(kind, attention=built))
    return s, replace(m, balanced=True), sparse_layers(c, 1), kinds


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *(afmoe if c.model_type == "afmoe" else laguna)(c, count))
