"""BLOOM: ALiBi instead of positions, a norm after the embedding, q, k and v of each head side by side."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import BLOOM


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention; the class has no other path than its own."""
    b.part = "attention"
    heads = c.heads_of(x.width)
    fused = b.linear(x, "self_attention.query_key_value", 3 * x.width, bias=True)
    q, k, v = (b.heads_first(piece) for piece in b.split(b.heads(fused, heads), [x.width // heads] * 3))
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            dropout=c.number("attention_dropout"),
            style=BLOOM,
            eager_only=True,
        ),
        q,
        k,
        v,
        module="self_attention",
    )
    out = b.linear(mixed, "self_attention.dense", x.width, bias=True, shard="row")
    b.still_named_in("self_attention", fused)
    return out


def layer(c: Config, index: int) -> Block:
    """A decoder layer; the residual is the layer's input or, where the config says so, its norm."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index)
    dropout, after_norm = c.number("hidden_dropout"), c.flag("apply_residual_connection_post_layernorm")
    x = b.input("hidden", c.hidden_size)
    h = b.layer_norm(x, "input_layernorm")
    x = b.add(h if after_norm else x, b.dropout(attention(b, h, c), dropout))
    h = b.layer_norm(x, "post_attention_layernorm")
    residual = h if after_norm else x
    b.part = "mlp"
    h = b.linear(h, "mlp.dense_h_to_4h", 4 * x.width, bias=True)
    h = b.activation(h, "bloom_gelu", "mlp.gelu_impl")
    h = b.dropout(b.linear(h, "mlp.dense_4h_to_h", x.width, bias=True, shard="row"), dropout)
    return b.build(hidden=b.add(residual, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding with its norm, layers, head."""
    b = BlockBuilder("transformer")
    words = b.embedding("word_embeddings", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.layer_norm(words, "word_embeddings_layernorm"))
    tied = c.flag("tie_word_embeddings", True)
    last = lm_head(c, "transformer.ln_f", tied=tied, layer_norm=True, embedding="transformer.word_embeddings")
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
