"""DiffLlama: the difference of two attentions in place of one."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    if c.number("attention_dropout") or c.num_key_value_heads % 2:
        raise c.error("differential attention wants an even num_key_value_heads and no attention_dropout")
    bias = c.flag("attention_bias")
    return alike(c, Design(qkv_bias=bias, output_bias=bias, core="differential"))
