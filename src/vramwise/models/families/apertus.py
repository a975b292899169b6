"""Apertus: a plain MLP with xIELU, norms of queries and keys."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("attention_bias")
    s = Design(
        norms=("attention_layernorm", None, "feedforward_layernorm", None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads_first"), mlp="plain",
    )  # fmt: skip
    return alike(c, s)
