"""Solar Open: Llama whose layers all have experts by DeepSeek V3's router."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    s, sparse = Design(qkv_bias=c.flag("attention_bias")), [True] * c.num_hidden_layers
    return mixture.model(c, s, deepseek_style(c, count), sparse, full_layers(c))
