"""Falcon's attention: multi-query or grouped heads in one projection, rotary positions or ALiBi."""

from __future__ import annotations

from vramwise.models.blocks import Shard, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import FALCON, GroupedQkv
from vramwise.models.operations.simple import AddBias, Linear


def key_value_heads(c: Config) -> int:
    """Key heads that the fused projection makes: grouped (40B, 180B, 11B), one (7B) or as many as query heads."""
    if c.flag("new_decoder_architecture"):
        groups = c.size("num_kv_heads", default=c.num_attention_heads)
        if c.num_attention_heads % groups:
            raise c.error(f"num_kv_heads ({groups}) does not divide num_attention_heads ({c.num_attention_heads})")
        return groups
    return 1 if c.flag("multi_query", True) else c.num_attention_heads


def linear(b: BlockBuilder, x: Value, module: str, width: int, c: Config, *, row: bool = False) -> Value:
    """`FalconLinear`: `input @ weight.T`, and the bias in a second step."""
    shard: Shard = "row" if row else "column"
    weight = b.parameter(module, "weight", (width, x.width), shard=shard, is_linear=True)
    y = b.unary(Linear(is_turned=True), x, module, [weight], width)
    if not c.flag("bias"):
        return y
    return b.unary(
        AddBias(), y, module, [b.parameter(module, "bias", (width,), shard="replicated" if row else "column")]
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
            GroupedQkv(num_heads=heads, num_key_value_heads=groups, broadcast=repeated),
            "self_attention",
            [fused],
            [d] * 3,
        )
    else:
        q, k, v = b.split(b.heads(fused, heads), [d] * 3)
    q, k, v = (b.heads_first(piece) for piece in (q, k, v))
    if not alibi:
        q, k = b.rotary(q, k)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads if repeated else groups,
            dropout=c.number("attention_dropout"),
            style=FALCON,
            alibi=alibi,
        ),
        q,
        k,
        v,
        module="self_attention",
        others=[x],
        cache=LayerCache("full", groups, d, d),
    )
    return linear(b, mixed, "self_attention.dense", x.width, c, row=True)
