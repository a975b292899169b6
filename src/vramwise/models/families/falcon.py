"""Falcon: multi-query or grouped heads in one projection, MLP beside the attention, rotary positions or ALiBi."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.layers.falcon_attention import attention, linear
from vramwise.models.operations.simple import AddInPlace


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Two linear layers with an activation between them."""
    b.part = "mlp"
    h = linear(b, x, "mlp.dense_h_to_4h", c.size("ffn_hidden_size", default=4 * x.width), c)
    return linear(
        b, b.activation(h, c.text("activation", "gelu"), "mlp.act"), "mlp.dense_4h_to_h", x.width, c, row=True
    )


def layer(c: Config, index: int) -> Block:
    """A decoder layer: attention then MLP, or both beside each other on one norm or two."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index)
    dropout = c.number("hidden_dropout")
    x = b.input("hidden", c.hidden_size)
    if not c.flag("parallel_attn", True):
        mixed = attention(b, b.layer_norm(x, "input_layernorm"), c)
        # The class applies attention_dropout here, not hidden_dropout.
        x = b.add(x, b.dropout(mixed, c.number("attention_dropout")))
        h = mlp(b, b.layer_norm(x, "post_attention_layernorm"), c)
        return b.build(hidden=b.add(x, b.dropout(h, dropout)))
    norms = c.size("num_ln_in_parallel_attn", default=2 if c.flag("new_decoder_architecture") else 1)
    if norms == 2:
        normed, mlp_normed = b.layer_norm(x, "ln_attn"), b.layer_norm(x, "ln_mlp")
    else:
        normed = mlp_normed = b.layer_norm(x, "input_layernorm")
    mixed = attention(b, normed, c)
    h = b.op(AddInPlace(), "", [mlp(b, mlp_normed, c), mixed], [x.width])[0]
    return b.build(hidden=b.add(x, b.dropout(h, dropout)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    words = "transformer.word_embeddings"
    b = BlockBuilder("transformer")
    first = b.build(hidden=b.embedding("word_embeddings", c.vocab_size, c.hidden_size))
    tied = c.flag("tie_word_embeddings", True)
    last = lm_head(c, "transformer.ln_f", tied=tied, layer_norm=True, embedding=words)
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
