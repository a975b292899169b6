"""Grouped-query attention whose result is gated by a second half of the query projection (Qwen 3 Next)."""

from __future__ import annotations

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.design import Design


def attention(b: BlockBuilder, x: Value, c: Config, table: str, *, share: float = 0.25, masked: bool = False) -> Value:
    """Grouped-query attention with norms of heads, a part of each head turned, its result times sigmoid(gate)."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    joint = b.heads(b.linear(x, "self_attn.q_proj", 2 * heads * d, bias=bias), heads)
    q, gate = b.split(joint, [d, d])
    gate = b.unary("flattened", gate, width=heads * d)
    q = b.heads_first(b.rms_norm(q, "self_attn.q_norm", style="gemma"))
    k = b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, "self_attn.k_norm", style="gemma"))
    v = b.heads_first(b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=bias), groups))
    columns = rotary_columns(c, Design(rotary_share=share))
    q, k = b.rotary(q, k, rotary_dim=columns, style="half_joined" if columns == d else "half", table=table)
    dropout = c.number("attention_dropout")
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=groups, dropout=dropout, masked=masked)
    mixed = b.multiply(mixed, b.activation(gate, "sigmoid", "self_attn"))
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")
