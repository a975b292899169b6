"""Token, segment and position embeddings of BERT and its relatives."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.encoder_design import Design
from vramwise.models.operations.encoders import MasksTakeDtype
from vramwise.models.operations.simple import Add, AddInPlace, Concatenate, Embedding, Hold


def _table(b: BlockBuilder, module: str, rows: int, width: int, ids: str, buffer_rows: int | None = None) -> Value:
    weight = b.parameter(module, "weight", (rows, width))
    return b.op(Embedding(ids=ids, buffer_rows=buffer_rows), module, [], [width], [weight])[0]


def _glyphs_and_sounds(b: BlockBuilder, x: Value, c: Config) -> Value:
    """RoCBert: embeddings of a character's shape and pronunciation, joined with the token's and projected."""
    pieces, joined = [], c.flag("concat_input", True)
    parts = (("shape", "enable_shape", 512, 24858), ("pronunciation", "enable_pronunciation", 768, 910))
    for name, switch, default_width, default_rows in parts:
        rows = c.size(f"{name}_vocab_size", default=default_rows)
        width = c.size(f"{name}_embed_dim", default=default_width)
        if joined and c.flag(switch, True):
            pieces.append(_table(b, f"{name}_embed", rows, width, f"{name}_ids"))
        else:
            x = b.unary(Hold(), x, f"{name}_embed", [b.parameter(f"{name}_embed", "weight", (rows, width))])
    if not joined:
        return x
    for piece in pieces:
        x = b.op(Concatenate(), "", [x, piece], [x.width + piece.width])[0]
    return b.linear(x, "map_inputs_layer", c.hidden_size, bias=True, shard="replicated")


def embedding(c: Config, d: Design, root: str) -> Block:
    """The sum of the embeddings, norm, dropout, and the projection of a narrower sum to the hidden size."""
    b = BlockBuilder(f"{root}embeddings", part="embedding")
    width, positions = c.size(d.embedding_width, default=c.hidden_size), c.size("max_position_embeddings")
    x = b.embedding("word_embeddings", c.vocab_size, width)
    joined = d.glyphs_and_sounds and c.flag("concat_input", True)
    x = _glyphs_and_sounds(b, x, c) if d.glyphs_and_sounds else x
    if c.flag("rescale_embeddings"):
        x = b.scale(x)

    def plus(x: Value, other: Value, in_place: bool) -> Value:
        return b.op(AddInPlace() if in_place else Add(), "", [x, other], [width])[0]

    if d.segments != "none":
        ids = "token_type_ids" if d.segments == "gathered" else f"{d.segments}_token_type_ids"
        held = positions if d.segments == "narrowed" else None
        rows = c.size("type_vocab_size", least=0)
        x = plus(x, _table(b, "token_type_embeddings", rows, width, ids, held), joined)
    if d.positions == "counted":
        x = plus(x, _table(b, "position_embeddings", positions, width, "counted_position_ids"), d.adds_in_place)
    elif d.positions == "buffer":
        table = _table(b, "position_embeddings", positions, width, "position_ids", positions)
        x = plus(x, table, d.adds_in_place or joined)
    if c.flag("use_task_id"):
        rows = c.size("task_type_vocab_size", default=3)
        x = plus(x, _table(b, "task_type_embeddings", rows, width, "task_type_ids"), True)
    if d.embedding_norm == "before dropout":
        x = b.layer_norm(x, "LayerNorm")
    x = b.dropout(x, c.number("hidden_dropout_prob", 0.1))
    if d.embedding_norm == "after dropout":
        x = b.layer_norm(x, "LayerNorm")
    x = b.unary(MasksTakeDtype(), x) if joined else x
    return b.build(hidden=x)


def after_embedding(c: Config, d: Design, root: str) -> tuple[Block, ...]:
    """The projection of a narrower embedding to the hidden size, and the fixed table of rotary positions."""
    b = BlockBuilder(root.rstrip("."), part="embedding")
    width = c.size(d.embedding_width, default=c.hidden_size)
    x = b.input("hidden", width)
    if d.projection and (d.always_projects or width != c.hidden_size):
        x = b.linear(x, d.projection, c.hidden_size, bias=True, shard="replicated")
        x = x if d.always_projects else b.unary(MasksTakeDtype(), x)
    if d.positions == "rotary":
        shape = (c.size("max_position_embeddings"), c.hidden_size // c.num_attention_heads)
        module = "encoder.embed_positions"
        x = b.unary(Hold(), x, module, [b.parameter(module, "weight", shape, frozen=True)])
    return (b.build(hidden=x),) if b.ops else ()
