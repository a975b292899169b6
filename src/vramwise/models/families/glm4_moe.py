"""GLM 4.5 and 4.6: grouped queries, half of each head turned, DeepSeek V3's router."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    c = c.filled({"head_dim": c.hidden_size // c.num_attention_heads})  # rounded down, as its own default needs
    norm = HeadNorm("heads") if c.flag("use_qk_norm") else None
    s = Design(qkv_bias=c.flag("attention_bias"), qk_norm=norm, rotary_share=0.5, joined=True)
    dense = c.size("first_k_dense_replace", default=1, least=0)
    return mixture.model(c, s, deepseek_style(c, count), sparse_layers(c, dense), full_layers(c))
