"""ERNIE 4.5: rotary pairs side by side, one switch for all biases, no attention dropout."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("use_bias")
    s = Design(qkv_bias=bias, output_bias=bias, mlp_bias=bias, rotary="pairs_widened", rotary_table="fp32", tied=True)
    return alike(Config({**c.values, "attention_dropout": 0.0}, c.model_id), s)
