"""DistilBERT: BERT without segments and pooler, with names of its own."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.multi_head_attention import multi_head_attention
from vramwise.models.operations.attention import PLAIN
from vramwise.models.operations.simple import Embedding

HEAD = "masked-lm"


# Defaults of DistilBertConfig (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 30_522,
    "max_position_embeddings": 512,
    "n_layers": 6,
    "n_heads": 12,
    "dim": 768,
    "hidden_dim": 3072,
}


def embedding(c: Config) -> Block:
    """Token and position embeddings, norm, dropout."""
    b = BlockBuilder("distilbert.embeddings", part="embedding")
    width, positions = c.hidden_size, c.size("max_position_embeddings")
    x = b.embedding("word_embeddings", c.vocab_size, width)
    table = b.parameter("position_embeddings", "weight", (positions, width))
    (p,) = b.op(Embedding(ids="position_ids", buffer_rows=positions), "position_embeddings", [], [width], [table])
    x = b.layer_norm(b.add(x, p), "LayerNorm")
    return b.build(hidden=b.dropout(x, c.number("dropout", 0.1)))


def layer(c: Config, index: int) -> Block:
    """A post-norm encoder layer."""
    b = BlockBuilder(f"distilbert.transformer.layer.{index}", layer=index, part="attention")
    x = b.input("hidden", c.hidden_size)
    names = ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin")
    h = multi_head_attention(
        b,
        x,
        c,
        names,
        module="attention",
        causal=False,
        style=PLAIN,
        dropout=c.number("attention_dropout", 0.1),
        cache=None,
    )
    x = b.layer_norm(b.add(h, x), "sa_layer_norm")
    b.part = "mlp"
    h = b.linear(x, "ffn.lin1", c.size("hidden_dim"), bias=True)
    h = b.activation(h, c.text("activation", "gelu"), "ffn.activation")
    h = b.dropout(b.linear(h, "ffn.lin2", x.width, bias=True, shard="row"), c.number("dropout", 0.1))
    return b.build(hidden=b.layer_norm(b.add(h, x), "output_layer_norm"))


def head(c: Config) -> Block:
    """Transform and the projection whose weight is the token embedding's."""
    b = BlockBuilder("", part="head")
    x = b.input("hidden", c.hidden_size)
    h = b.linear(x, "vocab_transform", x.width, bias=True, shard="replicated")
    h = b.layer_norm(b.activation(h, c.text("activation", "gelu"), "activation"), "vocab_layer_norm")
    tied_to = "distilbert.embeddings.word_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    return b.build(logits=b.linear(h, "vocab_projector", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
