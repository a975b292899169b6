"""Falcon: multi-query or grouped heads in one projection, MLP beside the attention, rotary positions or ALiBi."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config


def key_value_heads(c: Config) -> int:
    """Key heads that the fused projection makes: grouped (40B, 180B, 11B), one (7B) or as many as query heads."""
    if c.flag("new_decoder_architecture"):
        groups = c.size("num_kv_heads", default=c.num_attention_heads)
        if c.num_attention_heads % groups:
            raise c.error(f"num_kv_heads ({groups}) does not divide num_attention_heads ({c.num_attention_heads})")
        return groups
    return 1 if c.flag("multi_query", True) else c.num_attention_heads


def linear(b: BlockBuilder, x: Value, module: str, width: int, c: Config, *, row: bool = False) -> Value:
    """`FalconLinear`: a linear layer that adds its bias in a second step."""
    y = b.linear(x, module, width, shard="row" if row else "column")
    if not c.flag("bias"):
        return y
    return b.unary(
        "add_bias", y, module, [b.parameter(module, "bias", (width,), shard="replicated" if row else "column")]
    )


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """The class's own attention; on the way to it grouped keys and values are repeated for every query head."""
    b.part = "attention"
    heads, groups, alibi = c.num_attention_heads, key_value_heads(c), c.flag("alibi")
    if x.width % heads:
        raise c.error(f"num_attention_heads ({heads}) does not divide hidden_size ({x.width})")
    d = x.width // heads
    fused = linear(b, x, "self_attention.query_key_value", (heads + 2 * groups) * d, c)
    repeated = c.flag("new_decoder_architecture")
    if repeated or c.flag("multi_query", True):
        q, k, v = b.op(
            "grouped_qkv", "self_attention", [fused], [d] * 3,
            num_heads=heads, num_key_value_heads=groups, broadcast=repeated,
        )  # fmt: skip
    else:
        q, k, v = b.split(b.heads(fused, heads), [d] * 3)
    q, k, v = (b.heads_first(piece) for piece in (q, k, v))
    if not alibi:
        q, k = b.rotary(q, k)
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads if repeated else groups, module="self_attention",
        dropout=c.number("attention_dropout"), style="falcon", others=[x], alibi=alibi,
        cache=LayerCache("full", groups, d, d),
    )  # fmt: skip
    return linear(b, mixed, "self_attention.dense", x.width, c, row=True)


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
    h = b.op("add_in_place", "", [mlp(b, mlp_normed, c), mixed], [x.width])[0]
    return b.build(hidden=b.add(x, b.dropout(h, dropout)))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    b = BlockBuilder("transformer")
    first = b.build(hidden=b.embedding("word_embeddings", c.vocab_size, c.hidden_size))
    b = BlockBuilder("")
    x = b.layer_norm(b.input("hidden", c.hidden_size), "transformer.ln_f")
    tied_to = "transformer.word_embeddings.weight" if c.flag("tie_word_embeddings", True) else None
    last = b.build(logits=b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to))
    return (first, *(layer(c, i) for i in range(c.num_hidden_layers)), last)
