"""Orion 14B: Llama with layer norms.

Parameter names are those of the modeling file in OrionStarAI/Orion-14B-Base; what autograd keeps is derived from
transformers' Llama.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 84_608, "hidden_size": 4096, "intermediate_size": 15_360, "num_hidden_layers": 40,
    "num_attention_heads": 40,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    bias = c.flag("attention_bias")
    s = Design(norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias)
    return alike(c.filled(_DEFAULTS), s)
