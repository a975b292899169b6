"""What comes before and after the layers of BART and its relatives."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.bart_layers import Stack
from vramwise.models.layers.seq2seq_design import Design
from vramwise.models.operations.encoders import AddBuffer
from vramwise.models.operations.simple import Embedding, Hold, Scale

_M2M_OFFSET = 2
"""Rows of sinusoidal positions more than there are positions, as fairseq has them."""


def _fixed_table(b: BlockBuilder, x: Value, c: Config, d: Design) -> Value:
    """Positions computed once, mostly kept as a parameter that is never trained; backward needs nothing of them."""
    if d.fixed_table == "buffer":
        b.buffer("embed_positions", "weights", (c.size("max_position_embeddings") + _M2M_OFFSET, c.hidden_size))
    if d.fixed_table != "parameter":
        return x
    shape = (c.size("max_position_embeddings"), c.hidden_size)
    return b.unary(Hold(), x, "embed_positions", [b.parameter("embed_positions", "weight", shape, frozen=True)])


def embedding(s: Stack) -> Block:
    """Tokens, scaled, plus positions; norm, dropout."""
    c, d, width = s.c, s.d, s.c.hidden_size
    b = BlockBuilder(f"model.{s.name}", part="embedding")
    owner = s.tied("model.shared.weight") if s.shares else None
    table = b.parameter("embed_tokens", "weight", (s.vocabulary, width), shard="vocab", tied_to=owner)
    ids = "input_ids" if s.alone else f"{s.name}_input_ids"
    x = b.unary(Scale(), b.op(Embedding(ids=ids), "embed_tokens", [], [width], [table])[0], "embed_tokens")
    if d.embedding_norm == "tokens" and s.is_decoder:
        x = b.layer_norm(x, "layernorm_embedding")
    if d.positions == "fixed":
        x = _fixed_table(b, x, c, d)
    else:
        limit = "max_target_positions" if d.hears else "max_position_embeddings"
        shape = (c.size(limit) + (2 if d.positions == "offset" else 0), width)
        rows = d.decoder_rows if s.is_decoder else d.positions == "offset"
        kind = ("" if s.is_decoder else "encoder_") + ("position_rows" if rows else "position_ids")
        weight = b.parameter("embed_positions", "weight", shape)
        x = b.add(x, b.op(Embedding(ids=kind), "embed_positions", [], [width], [weight])[0])
    if d.embedding_norm == "sum" or (d.embedding_norm == "tokens" and not s.is_decoder):
        x = b.layer_norm(x, "layernorm_embedding")
    return b.build(hidden=b.dropout(x, c.number("dropout")))


def shared_embedding(s: Stack) -> Block:
    """The table whose storage the stacks and the head share."""
    b = BlockBuilder("")
    x = b.input("hidden", s.c.hidden_size)
    table = b.parameter("model.shared", "weight", (s.c.vocab_size, x.width), part="embedding", shard="vocab")
    return b.build(hidden=b.unary(Hold(), x, "model.shared", [table]))


def closing(s: Stack) -> Block:
    """The norm after a stack's layers where there is one, and after the decoder the projection to the vocabulary."""
    b = BlockBuilder("")
    x = b.input("hidden", s.c.hidden_size)
    if s.d.final_norm:
        x = b.layer_norm(x, f"model.{s.name}.{s.d.final_norm}")
    if not s.is_decoder:
        return b.build(encoder=x)
    owner = s.tied("model.shared.weight" if s.shares else "model.decoder.embed_tokens.weight")
    if s.alone and not s.d.tied_alone:
        owner = None  # the class names no tied weights
    rows = s.c.vocab_size if s.alone or s.shares else s.vocabulary
    logits = b.linear(x, s.d.head, rows, shard="vocab", part="head", tied_to=owner)
    if not s.d.logits_bias or s.alone:
        return b.build(logits=logits)
    b.buffer("", "final_logits_bias", (1, rows))
    return b.build(logits=b.unary(AddBuffer(), logits))
