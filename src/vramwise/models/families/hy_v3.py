"""Hunyuan 3: experts by corrected sigmoid scores, whose result meets the shared one's in fp32."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    shared = c.size("moe_intermediate_size") * c.size("num_shared_experts", default=1)
    m = replace(corrected(c, count, shared=shared, widened=True), bias=mlp_bias)
    m = replace(m, joined="fp32") if c.flag("enable_moe_fp32_combine", True) else m
    s = Design(qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, qk_norm=HeadNorm("heads_first"))
    return mixture.model(c, s, m, sparse_layers(c, 1), full_layers(c))
