"""BitNet b1.58: norms before the last product of attention and of the MLP."""

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
        raise c.error("its norm after attention needs num_attention_heads · head_dim = hidden_size")
    bias = c.flag("attention_bias")
    return alike(c, Design(qkv_bias=bias, output_bias=bias, sub_norms=True))
