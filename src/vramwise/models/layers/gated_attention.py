"""Grouped-query attention whose result is gated by a second half of the query projection (Qwen 3 Next, 4)."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.decoder_attention import rotary_columns
from vramwise.models.layers.decoder_design import Design
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.delta_rule import Flattened
from vramwise.models.operations.residual_streams import BlockIndex


def attention(b: BlockBuilder, x: Value, c: Config, table: str, *, share: float = 0.25, masked: bool = False) -> Value:
    """Grouped-query attention with norms of heads, a part of each head turned, its result times sigmoid(gate)."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    joint = b.heads(b.linear(x, "self_attn.q_proj", 2 * heads * d, bias=bias), heads)
    q, gate = b.split(joint, [d, d])
    gate = b.unary(Flattened(), gate, width=heads * d)
    q = b.heads_first(b.rms_norm(q, "self_attn.q_norm", style="gemma"))
    k = b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), groups)
    k = b.heads_first(b.rms_norm(k, "self_attn.k_norm", style="gemma"))
    v = b.heads_first(b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=bias), groups))
    columns = rotary_columns(c, Design(rotary_share=share))
    q, k = b.rotary(q, k, rotary_dim=columns, style="half_joined" if columns == d else "half", table=table)
    dropout = c.number("attention_dropout")
    mixed = b.attention(Attention(num_heads=heads, num_key_value_heads=groups, dropout=dropout, masked=masked), q, k, v)
    mixed = b.multiply(mixed, b.activation(gate, "sigmoid", "self_attn"))
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def indexed_attention(b: BlockBuilder, x: Value, c: Config, first: bool) -> Value:
    """Gated attention to the tokens of blocks whose mean keys score best; the first keeps positions on three axes."""
    module, width = "self_attn.indexer", c.size("indexer_head_dim")
    heads = c.size("indexer_n_heads") + c.size("indexer_kv_heads")
    b.part = "attention"
    parameters = [
        b.parameter(f"{module}.index_qk_proj", "weight", (heads * width, x.width), is_linear=True),
        *(b.parameter(f"{module}.{piece}_layernorm", "weight", (width,), part="norm") for piece in "qk"),
    ]
    b.op(BlockIndex(), module, [x], [], parameters)
    b.keep(LayerCache("full", 1, width, 0, token_ids=3 if first else 0))
    return attention(b, x, c, "rows", share=1.0, masked=True)
