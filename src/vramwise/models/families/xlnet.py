"""XLNet: two-way attention over contents and relative positions, without recurrence between batches."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.xlnet import BatchFirst, SequenceFirstEmbedding, XlnetAttention

CLASS_DEFAULTS = {"vocab_size": 32000, "d_model": 1024, "n_layer": 24, "n_head": 16, "d_inner": 4096}
"""Defaults of `XLNetConfig`."""


def loss(c: Config) -> str:
    """The class does not shift labels."""
    return "masked-lm"


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """One operation with weights that keep their heads apart; the segments' stay without use."""
    heads, module = c.num_attention_heads, "rel_attn"
    if x.width % heads:
        raise c.error(f"n_head ({heads}) does not divide d_model ({x.width})")
    d = x.width // heads
    weights = [b.parameter(module, name, (x.width, heads, d)) for name in "qkvor"]
    weights += [b.parameter(module, f"r_{kind}_bias", (heads, d)) for kind in "rsw"]
    weights.append(b.parameter(module, "seg_embed", (2, heads, d)))
    return b.unary(XlnetAttention(dropout=c.number("dropout", 0.1), num_heads=heads), x, module, weights)


def layer(c: Config, index: int) -> Block:
    """A post-norm layer."""
    b = BlockBuilder(f"transformer.layer.{index}", layer=index, part="attention")
    dropout = c.number("dropout", 0.1)
    x = b.input("hidden", c.hidden_size)
    if c.flag("use_mems_eval", True):  # the layer's inputs, which its keys and values are made of again
        kept = c.size("mem_len", default=0, least=0) or None
        b.keep(LayerCache("sliding" if kept else "full", 1, x.width, 0, window=kept))
    x = b.layer_norm(b.add(b.dropout(attention(b, x, c), dropout), x), "rel_attn.layer_norm")
    b.part = "mlp"
    h = b.linear(x, "ff.layer_1", c.size("d_inner"), bias=True)
    h = b.dropout(b.activation(h, c.text("ff_activation", "gelu"), "ff.activation_function"), dropout)
    h = b.dropout(b.linear(h, "ff.layer_2", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.layer_norm(b.add(h, x), "ff.layer_norm"))


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, output projection with a bias."""
    c = config.filled(CLASS_DEFAULTS)
    b = BlockBuilder("transformer", part="embedding")
    table = b.parameter("word_embedding", "weight", (c.vocab_size, c.hidden_size), shard="vocab")
    x = b.op(SequenceFirstEmbedding(), "word_embedding", [], [c.hidden_size], [table])[0]
    x = b.unary(Hold(), x, "", [b.parameter("", "mask_emb", (1, 1, x.width))])
    first = b.build(hidden=b.dropout(x, c.number("dropout", 0.1)))
    end = BlockBuilder("", part="head")
    x = end.unary(BatchFirst(), end.dropout(end.input("hidden", c.hidden_size), c.number("dropout", 0.1)))
    tied_to = "transformer.word_embedding.weight" if c.flag("tie_word_embeddings", True) else None
    last = end.build(logits=end.linear(x, "lm_loss", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
