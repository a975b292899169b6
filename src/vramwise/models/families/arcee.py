"""Arcee: Llama with Nemotron's plain MLP."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    return alike(c, Design(qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, mlp="plain"))
