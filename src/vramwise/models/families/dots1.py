"""dots.llm1: grouped queries with normed heads, DeepSeek V3's router, windows in the upper layers where asked for."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, sliding_window
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    bias, window = c.flag("attention_bias"), sliding_window(c)
    first = c.size("max_window_layers", default=62, least=0)
    default = ["sliding_attention" if window and i >= first else "full_attention" for i in range(c.num_hidden_layers)]
    s = Design(qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("heads"))
    dense = c.size("first_k_dense_replace", default=0, least=0)
    return mixture.model(c, s, deepseek_style(c, count), sparse_layers(c, dense), typed_layers(c, default))
