"""Hunyuan 1 with experts: queries and keys normed after they are turned, one shared expert in every layer."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    bias, keys = c.flag("attention_bias"), ("num_experts", "num_local_experts")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("turned", names=("query_layernorm", "key_layernorm")))
    values = {**c.values, "num_experts_per_tok": c.size("moe_topk", "num_experts_per_tok", default=1)}
    e = experts(Config(values, c.model_id), count, keys=keys, routing="hunyuan_v1_moe", router="mlp.gate.wg")
    e = replace(e, intermediate_size=c.intermediate_size)
    m = Mixture(e, shared=e.intermediate_size, shared_module="mlp.shared_mlp")
    return mixture.model(c, s, m, [True] * c.num_hidden_layers, full_layers(c))
