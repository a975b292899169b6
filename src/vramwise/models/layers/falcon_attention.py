"""Falcon's attention: multi-query or grouped heads in one projection, rotary positions or ALiBi."""

from __future__ import annotations

from vramwise.models.blocks import BlockBuilder, Value
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
    heads, groups, alibi = c.heads_of(x.width), key_value_heads(c), c.flag("alibi")
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
