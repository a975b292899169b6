"""Apertus, 1 and 1.5's text: a plain MLP with xIELU, norms of queries and keys; 1.5's head may end before its codes."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, rows = c.flag("attention_bias"), c.size("output_vocab_size", default=c.vocab_size)
    if rows > c.vocab_size or (rows < c.vocab_size and c.flag("tie_word_embeddings")):
        raise c.error(f"output_vocab_size ({rows}): expected at most vocab_size ({c.vocab_size}), fewer where untied")
    s = Design(
        norms=("attention_layernorm", None, "feedforward_layernorm", None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads_first"), mlp="plain", head_rows=rows,
    )  # fmt: skip
    return alike(c, s)
