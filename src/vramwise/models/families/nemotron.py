"""Nemotron 3 and 4 (Minitron): layer norms of one plus the weight, a plain MLP, half of each head turned."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("attention_bias")
    s = Design(
        norm="layer", norm_style="one-plus-weight", norm_bias=True, qkv_bias=bias, output_bias=bias,
        mlp_bias=c.flag("mlp_bias"), mlp="plain", rotary_share=0.5, joined=True,
    )  # fmt: skip
    return alike(c, s)
