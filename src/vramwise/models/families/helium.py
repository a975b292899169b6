"""Helium: Llama with its rotary pairs side by side and the norm's weight in fp32."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.num_attention_heads * c.head_dim != c.hidden_size:
        raise c.error("its output projection needs num_attention_heads · head_dim = hidden_size")
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    return alike(c, Design(norm_style="fp32-weight", qkv_bias=bias, mlp_bias=mlp_bias, rotary="pairs"))
