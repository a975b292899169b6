"""The first and the last block of a decoder: embedding, final norm and output projection."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config


def token_embedding(c: Config, module: str = "model.embed_tokens") -> Block:
    """The first block: token ids -> hidden states."""
    b = BlockBuilder("")
    return b.build(hidden=b.embedding(module, c.vocab_size, c.hidden_size))


def logits(
    b: BlockBuilder, x: Value, c: Config, norm: str, *, tied: bool, norm_style: str = "llama", layer_norm: bool = False,
    module: str = "lm_head", embedding: str = "model.embed_tokens", capped: bool = False,
) -> Value:  # fmt: skip
    """Final norm and output projection, whose weight may be that of the embedding `embedding`."""
    x = b.layer_norm(x, norm) if layer_norm else b.rms_norm(x, norm, style=norm_style)
    tied_to = f"{embedding}.weight" if tied else None
    y = b.linear(x, module, c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return b.softcap(y) if capped else y


def lm_head(c: Config, norm: str, **switches: Any) -> Block:
    """The last block: `logits` of the stream."""
    b = BlockBuilder("")
    return b.build(logits=logits(b, b.input("hidden", c.hidden_size), c, norm, **switches))
