"""GPT-NeoX, Pythia: fused qkv by head, rotary positions on part of each head, attention and MLP side by side."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head
from vramwise.models.operations.attention import Attention


def head_width(c: Config) -> int:
    """hidden_size / num_attention_heads, whatever else the config says."""
    if c.hidden_size % c.num_attention_heads:
        raise c.error(f"num_attention_heads ({c.num_attention_heads}) does not divide hidden_size ({c.hidden_size})")
    return c.hidden_size // c.num_attention_heads


def rotary_width(c: Config) -> int:
    """Columns of the rotary table: a quarter of each head unless the config says otherwise, rounded up to pairs."""
    rope = c.table("rope_parameters") or c.table("rope_scaling") or Config({})
    share = rope.number("partial_rotary_factor", c.number("rotary_pct", 0.25))
    width = -(-int(head_width(c) * share) // 2) * 2 if share <= 1 else 0
    if not 0 < width <= head_width(c):
        raise c.error(f"rotary_pct ({share}) leaves no whole pairs of a head of {head_width(c)}")
    return width


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Multi-head attention; each head's q, k and v lie side by side in the fused projection."""
    b.part = "attention"
    heads, bias, d = c.num_attention_heads, c.flag("attention_bias", True), head_width(c)
    fused = b.heads_first(b.heads(b.linear(x, "attention.query_key_value", 3 * x.width, bias=bias), heads))
    q, k, v = b.split(fused, [d] * 3)
    rotary_dim = rotary_width(c)
    q, k = b.rotary(q, k, rotary_dim=rotary_dim, style="half" if rotary_dim < d else "half_joined")
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, dropout=c.number("attention_dropout")),
        q,
        k,
        v,
        module="attention",
    )
    return b.linear(mixed, "attention.dense", x.width, bias=bias, shard="row")


def mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Two linear layers with an activation between them."""
    b.part = "mlp"
    h = b.linear(x, "mlp.dense_h_to_4h", c.size("intermediate_size", default=24576), bias=True)
    h = b.activation(h, c.text("hidden_act", "gelu"), "mlp.act")
    return b.linear(h, "mlp.dense_4h_to_h", x.width, bias=True, shard="row")


def layer(c: Config, index: int) -> Block:
    """A layer whose MLP reads the layer's own input (parallel residual) or the attention's sum."""
    b = BlockBuilder(f"gpt_neox.layers.{index}", layer=index)
    dropout = c.number("hidden_dropout")
    x = b.input("hidden", c.hidden_size)
    mixed = b.dropout(attention(b, b.layer_norm(x, "input_layernorm"), c), dropout)
    if c.flag("use_parallel_residual", True):
        h = b.dropout(mlp(b, b.layer_norm(x, "post_attention_layernorm"), c), dropout)
        return b.build(hidden=b.add(b.add(h, mixed), x))
    x = b.add(mixed, x)
    h = b.dropout(mlp(b, b.layer_norm(x, "post_attention_layernorm"), c), dropout)
    return b.build(hidden=b.add(h, x))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    embedding = BlockBuilder("gpt_neox")
    words = embedding.embedding("embed_in", c.vocab_size, c.hidden_size)
    first = embedding.build(hidden=embedding.dropout(words, c.number("hidden_dropout")))
    tied = c.flag("tie_word_embeddings")
    last = lm_head(c, "gpt_neox.final_layer_norm", tied=tied, layer_norm=True, embedding="gpt_neox.embed_in")
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
