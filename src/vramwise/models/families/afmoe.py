"""AFMoE (Arcee Trinity): attention gated by the layer's input, windows in turns, experts by corrected sigmoids."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.windows import every, typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
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
    m = replace(m, correction=("mlp", "expert_bias", (num_experts,)))
    return mixture.model(c, s, m, sparse_layers(c, dense), kinds)
