"""Layers of ChatGLM: of the first generation, and of the second to GLM-4-9B."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention


def norm(b: BlockBuilder, x: Value, name: str, c: Config) -> Value:
    return b.rms_norm(x, name, style="fp32-product") if c.flag("rmsnorm", True) else b.layer_norm(x, name)


def attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Grouped queries from one product; half of every head turns."""
    b.part = "attention"
    heads, bias = c.num_attention_heads, c.flag("add_bias_linear")
    d = c.size("kv_channels", default=128)
    groups = c.size("multi_query_group_num") if c.flag("multi_query_attention") else heads
    if heads % groups:
        raise c.error(f"multi_query_group_num ({groups}) does not divide num_attention_heads ({heads})")
    widths = [heads * d, groups * d, groups * d]
    fused = b.linear(x, "self_attention.query_key_value", sum(widths), bias=bias or c.flag("add_qkv_bias"))
    if groups == heads:
        q, k, v = b.split(b.heads(fused, heads), [d, d, d])
    else:
        q, k, v = (b.heads(y, n) for y, n in zip(b.split(fused, widths), (heads, groups, groups), strict=True))
    q, k = b.rotary(b.heads_first(q), b.heads_first(k), rotary_dim=d // 2, style="pairs")
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=groups, dropout=c.number("attention_dropout")),
        q,
        k,
        b.heads_first(v),
        module="self_attention",
    )
    return b.linear(mixed, "self_attention.dense", x.width, bias=bias, shard="row")


def layer(c: Config, index: int) -> Block:
    """A decoder layer of the second and later generations."""
    b = BlockBuilder(f"transformer.encoder.layers.{index}", layer=index)
    after_norm, dropout = c.flag("apply_residual_connection_post_layernorm"), c.number("hidden_dropout")
    x = b.input("hidden", c.hidden_size)
    h = norm(b, x, "input_layernorm", c)
    x = b.add(h if after_norm else x, b.dropout(attention(b, h, c), dropout))
    h = norm(b, x, "post_attention_layernorm", c)
    residual, width, bias = h if after_norm else x, c.size("ffn_hidden_size"), c.flag("add_bias_linear")
    b.part = "mlp"
    gate, up = b.split(b.linear(h, "mlp.dense_h_to_4h", 2 * width, bias=bias), [width, width])
    h = b.multiply(b.activation(gate, "silu", "mlp"), up)
    h = b.linear(h, "mlp.dense_4h_to_h", x.width, bias=bias, shard="row")
    return b.build(hidden=b.add(residual, b.dropout(h, dropout)))


def first_layer(c: Config, index: int) -> Block:
    """A layer of the first generation: the residual is the norm's result, scaled by (2 · layers)^½."""
    b = BlockBuilder(f"transformer.layers.{index}", layer=index)
    heads, d = c.num_attention_heads, c.head_dim
    x = b.layer_norm(b.input("hidden", c.hidden_size), "input_layernorm")
    b.part = "attention"
    fused = b.heads(b.linear(x, "attention.query_key_value", 3 * x.width, bias=True), heads)
    q, k, v = (b.heads_first(piece) for piece in b.split(fused, [d, d, d]))
    q, k = b.rotary(q, k)
    mixed = b.attention(
        Attention(num_heads=heads, num_key_value_heads=heads, eager_only=True), q, k, v, module="attention"
    )
    x = b.add(b.scale(x), b.linear(mixed, "attention.dense", x.width, bias=True, shard="row"))
    x = b.layer_norm(x, "post_attention_layernorm")
    b.part = "mlp"
    h = b.linear(x, "mlp.dense_h_to_4h", c.size("inner_hidden_size", default=4 * x.width), bias=True)
    h = b.linear(b.activation(h, "gelu_fast", "mlp"), "mlp.dense_4h_to_h", x.width, bias=True, shard="row")
    return b.build(hidden=b.add(b.scale(x), h))
