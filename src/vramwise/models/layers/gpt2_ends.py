"""The first and the last block of GPT-2 and the models that took them over: learned positions, a final layer norm."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head


def embedding(c: Config, rows: int, dropout: float) -> Block:
    """Token plus position embedding."""
    b = BlockBuilder("transformer")
    tokens = b.embedding("wte", c.vocab_size, c.hidden_size)
    positions = b.embedding("wpe", rows, c.hidden_size, ids="position_ids", shard="replicated")
    return b.build(hidden=b.dropout(b.add(tokens, positions), dropout))


def head(c: Config) -> Block:
    """Final norm and output projection (the token embedding's weight unless untied)."""
    tied = c.flag("tie_word_embeddings", True)
    return lm_head(c, "transformer.ln_f", tied=tied, layer_norm=True, embedding="transformer.wte")
