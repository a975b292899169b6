"""OPT: learned positions counted per row, pre- or post-norm layers, a word embedding of its own width."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention

POSITION_OFFSET = 2
"""Rows of the position table that no position uses (`OPTLearnedPositionalEmbedding`)."""


def word_width(c: Config) -> int:
    """Width of the word embedding, from and to which OPT-350m projects."""
    return c.size("word_embed_proj_dim", default=c.hidden_size)


def norm(b: BlockBuilder, x: Value, module: str, c: Config) -> Value:
    """A layer norm, without weight and bias where the config says so."""
    return b.layer_norm(x, module, weight=c.flag("layer_norm_elementwise_affine", True))


def embedding(c: Config) -> Block:
    """Token plus position embedding; positions are summed from the mask, so every row has its own."""
    b = BlockBuilder("model.decoder")
    x = b.embedding("embed_tokens", c.vocab_size, word_width(c))
    rows = c.size("max_position_embeddings", default=2048) + POSITION_OFFSET
    positions = b.embedding("embed_positions", rows, c.hidden_size, ids="counted_position_ids", shard="replicated")
    if word_width(c) != c.hidden_size:
        x = b.linear(x, "project_in", c.hidden_size, shard="replicated", part="embedding")
    return b.build(hidden=b.add(x, positions))


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention whose queries are scaled before the product."""
    b.part = "attention"
    heads, width, bias = c.heads_of(c.hidden_size), c.hidden_size, c.flag("enable_bias", True)
    q = b.scale(b.linear(x, "self_attn.q_proj", width, bias=bias))
    k = b.linear(x, "self_attn.k_proj", width, bias=bias)
    v = b.linear(x, "self_attn.v_proj", width, bias=bias)
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in (q, k, v))
    dropout = c.number("attention_dropout")
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=heads, dropout=dropout), q, k, v)
    return b.linear(mixed, "self_attn.out_proj", width, bias=bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """A decoder layer with its norms before (most sizes) or after (350m) each half."""
    b = BlockBuilder(f"model.decoder.layers.{index}", layer=index)
    before, bias, dropout = c.flag("do_layer_norm_before", True), c.flag("enable_bias", True), c.number("dropout", 0.1)
    x = b.input("hidden", c.hidden_size)
    h = norm(b, x, "self_attn_layer_norm", c) if before else x
    x = b.add(x, b.dropout(attention(b, h, c), dropout))
    if not before:
        x = norm(b, x, "self_attn_layer_norm", c)
    b.part = "mlp"
    h = norm(b, x, "final_layer_norm", c) if before else x
    h = b.linear(h, "fc1", c.size("ffn_dim", default=3072), bias=bias)
    h = b.activation(h, c.text("activation_function", "relu"), "activation_fn")
    h = b.dropout(b.linear(h, "fc2", c.hidden_size, bias=bias, shard="row"), dropout)
    x = b.add(x, h)
    return b.build(hidden=x if before else norm(b, x, "final_layer_norm", c))


def head(c: Config) -> Block:
    """Final norm (pre-norm models only), projection back to the word width, output projection."""
    b = BlockBuilder("")
    x = b.input("hidden", c.hidden_size)
    if c.flag("do_layer_norm_before", True) and not c.flag("_remove_final_layer_norm"):
        x = norm(b, x, "model.decoder.final_layer_norm", c)
    if word_width(c) != c.hidden_size:
        x = b.linear(x, "model.decoder.project_out", word_width(c), shard="replicated", part="head")
    tied_to = "model.decoder.embed_tokens.weight" if c.flag("tie_word_embeddings", True) else None
    return b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    return (embedding(c), *(layer(c, i) for i in range(c.num_hidden_layers)), head(c))
