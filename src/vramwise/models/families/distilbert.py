"""DistilBERT: BERT without segments and pooler, with names of its own."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config

HEAD = "masked-lm"


def width_of(c: Config) -> int:
    """The width of the hidden states."""
    return c.size("hidden_size", default=768)


def embedding(c: Config) -> Block:
    """Token and position embeddings, norm, dropout."""
    b = BlockBuilder("distilbert.embeddings", part="embedding")
    width, positions = width_of(c), c.size("max_position_embeddings", default=512)
    x = b.embedding("word_embeddings", c.size("vocab_size", default=30522), width)
    table = b.parameter("position_embeddings", "weight", (positions, width))
    (p,) = b.op(
        "embedding", "position_embeddings", [], [width], [table], ids="position_ids", buffer_rows=positions
    )  # fmt: skip
    x = b.layer_norm(b.add(x, p), "LayerNorm")
    return b.build(hidden=b.dropout(x, c.number("dropout", 0.1)))


def layer(c: Config, index: int) -> Block:
    """A post-norm encoder layer."""
    b = BlockBuilder(f"distilbert.transformer.layer.{index}", layer=index, part="attention")
    heads, width = c.size("num_attention_heads", default=12), width_of(c)
    if width % heads:
        raise c.error(f"n_heads ({heads}) does not divide dim ({width})")
    x = b.input("hidden", width)
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"attention.{name}", width, bias=True), heads))
        for name in ("q_lin", "k_lin", "v_lin")
    )
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, module="attention", causal=False, style="plain",
        dropout=c.number("attention_dropout", 0.1), cache=None,
    )  # fmt: skip
    h = b.linear(mixed, "attention.out_lin", width, bias=True, shard="row")
    x = b.layer_norm(b.add(h, x), "sa_layer_norm")
    b.part = "mlp"
    h = b.linear(x, "ffn.lin1", c.size("hidden_dim", default=3072), bias=True)
    h = b.activation(h, c.text("activation", "gelu"), "ffn.activation")
    h = b.dropout(b.linear(h, "ffn.lin2", width, bias=True, shard="row"), c.number("dropout", 0.1))
    return b.build(hidden=b.layer_norm(b.add(h, x), "output_layer_norm"))


def head(c: Config) -> Block:
    """Transform and the projection whose weight is the token embedding's."""
    b = BlockBuilder("", part="head")
    x = b.input("hidden", width_of(c))
    h = b.linear(x, "vocab_transform", x.width, bias=True, shard="replicated")
    h = b.layer_norm(b.activation(h, c.text("activation", "gelu"), "activation"), "vocab_layer_norm")
    tied_to = "distilbert.embeddings.word_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    vocabulary = c.size("vocab_size", default=30522)
    return b.build(logits=b.linear(h, "vocab_projector", vocabulary, bias=True, shard="vocab", tied_to=tied_to))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    layers = (layer(c, i) for i in range(c.size("num_hidden_layers", default=6)))
    return (embedding(c), *layers, head(c))
