"""Seed-OSS: Llama with biases of queries, keys and values, and dropout after each half."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    after = c.number("residual_dropout")
    s = Design(
        qkv_bias=c.flag("attention_bias", True), output_bias=c.flag("attention_out_bias"), mlp_bias=c.flag("mlp_bias"),
        dropouts=(0.0, after, after),
    )  # fmt: skip
    return alike(c, s)
