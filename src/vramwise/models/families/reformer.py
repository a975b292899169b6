"""Reformer: local and hashed attention in reversible layers, axial positions, a head over both streams.

Its class caches each layer's input states and, with hashed attention, their buckets, as index numbers of 8 bytes that
are not counted.
"""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.simple import AddBias
from vramwise.models.operations.undescribed import Undescribed

# Defaults of ReformerConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 320, "hidden_size": 256, "num_attention_heads": 12, "attention_head_size": 64,
    "feed_forward_size": 512, "max_position_embeddings": 4096, "attn_layers": ["local", "lsh"] * 3,
    "axial_pos_shape": [64, 64], "axial_pos_embds_dim": [64, 192],
}  # fmt: skip


def sizes(c: Config, name: str) -> list[int]:
    return [Config({name: value}, c.model_id).size(name) for value in c.items(name) or []]


def positions(b: BlockBuilder, x: Value, c: Config) -> Value:
    """A table for each axis of a grid of positions, or one row for each position."""
    module = "reformer.embeddings.position_embeddings"
    if not c.flag("axial_pos_embds", True):
        rows = b.embedding(f"{module}.embedding", c.size("max_position_embeddings"), x.width, ids="position_ids")
        return b.add(x, rows)
    shape, widths = sizes(c, "axial_pos_shape"), sizes(c, "axial_pos_embds_dim")
    if len(shape) != len(widths) or sum(widths) != x.width:
        raise c.error(f"axial_pos_embds_dim {widths} must sum to hidden_size ({x.width}), one for each axis of {shape}")
    tables = []
    for axis, (side, width) in enumerate(zip(shape, widths, strict=True)):
        ones = [1] * len(shape)
        ones[axis] = side
        tables.append(b.parameter(f"{module}.weights", str(axis), (*ones, width), part="embedding"))
    return b.unary(Undescribed(name="axial positions"), x, module, tables)


def layer(c: Config, index: int, kind: str) -> Block:
    """Attention of one stream to the other's norm, an MLP; queries are keys where attention is hashed."""
    b = BlockBuilder(f"reformer.encoder.layers.{index}", layer=index, part="attention")
    x, inner = b.input("hidden", c.hidden_size), c.num_attention_heads * c.size("attention_head_size")
    h = b.layer_norm(x, "attention.layer_norm")
    names = ("query", "key", "value") if kind == "local" else ("query_key", "value")
    pieces = [b.linear(h, f"attention.self_attention.{name}", inner) for name in names]
    (h,) = b.op(Undescribed(name="attention within chunks"), "attention", pieces, [inner])
    b.keep(LayerCache("full", 1, c.hidden_size, 0))
    x = b.add(x, b.linear(h, "attention.output.dense", x.width, shard="row"))
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "feed_forward.layer_norm"), "feed_forward.dense.dense", c.size("feed_forward_size"),
                 bias=True)  # fmt: skip
    h = b.activation(h, c.text("hidden_act", "relu"), "feed_forward.dense")
    return b.build(hidden=b.add(x, b.linear(h, "feed_forward.output.dense", x.width, bias=True, shard="row")))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, norm and head over both streams side by side."""
    c = c.filled(_DEFAULTS)
    kinds = c.items("attn_layers") or []
    if not kinds or any(kind not in ("local", "lsh") for kind in kinds):
        raise c.error('attn_layers: expected a list of "local" and "lsh"')
    b = BlockBuilder("")
    x = b.embedding("reformer.embeddings.word_embeddings", c.vocab_size, c.hidden_size)
    first = b.build(hidden=positions(b, x, c))
    b = BlockBuilder("")
    x = b.input("hidden", c.hidden_size)
    (x,) = b.op(Undescribed(name="reversible layers"), "reformer.encoder", [x], [2 * x.width])
    x = b.layer_norm(x, "reformer.encoder.layer_norm")
    logits = b.linear(x, "lm_head.decoder", c.vocab_size, shard="vocab", part="head")
    bias = b.parameter("lm_head", "bias", (c.vocab_size,), part="head", shard="vocab")
    last = b.build(logits=b.unary(AddBias(), logits, "lm_head", [bias]))
    return (first, *(layer(c, i, str(kind)) for i, kind in enumerate(kinds)), last)
