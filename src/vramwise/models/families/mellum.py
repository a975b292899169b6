"""Mellum: normed heads, windows and rotary tables by kind of layer, experts by softmax."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import Mixture, experts, sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    keys = ("num_experts", "num_local_experts")
    e = experts(c, count, keys=keys, routing="qwen", normalized=c.flag("norm_topk_prob", True))
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"))
    kinds = typed_layers(c, ["full_attention"] * c.num_hidden_layers, tables=True)
    return mixture.model(c, s, Mixture(e, balanced=True), sparse_layers(c, 0), kinds)
