"""Laguna: number of query heads and turned share of them differ by layer; attention is gated by head or by element."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_attention import attention
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    bias, gating = c.flag("attention_bias"), c.get("gating", True)
    function = "softplus_by_head" if gating is True or gating == "per-head" else "softplus"
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"), joined=True, gate=("g_proj", function))
    shared = c.size("shared_expert_intermediate_size", default=512)
    capped = c.number("moe_router_logit_softcapping") > 0
    m = corrected(c, count, shared=shared, epsilon=False, scaled=False, cast=True, capped=capped)
    m = replace(m, scaled=True, correction=("mlp.gate", "e_score_correction_bias", (m.experts.num_experts,)))
    types = c.layer_types() or ["full_attention"] * c.num_hidden_layers
    own_heads = c.by_layer("num_attention_heads_per_layer", empty_is_absent=True)
    heads = own_heads or [c.num_attention_heads] * len(types)
    shares = {"full_attention": 0.5, "sliding_attention": 1.0}
    rope = c.table("rope_parameters")
    kinds = []
    for index, kind in enumerate(typed_layers(c, types, tables=True)):
        stated = rope.table(types[index]) if rope else None
        own = stated.values if stated and stated.values else {"partial_rotary_factor": shares.get(types[index], 1.0)}
        values = {
            **c.values,
            "num_attention_heads": heads[index],
            "rope_parameters": {"partial_rotary_factor": 1.0, **own},
        }
        built = partial(attention, c=Config(values, c.model_id), s=s, kind=kind)
        kinds.append(replace(kind, attention=built))
    m = replace(m, balanced=True)
    return mixture.model(c, s, m, sparse_layers(c, 1), kinds)
