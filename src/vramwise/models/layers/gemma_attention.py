"""Attention of Gemma 3n and 4: normed queries, keys and values; the last layers read the keys of earlier ones."""

from __future__ import annotations

from typing import Literal

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.gemma import RotaryByRow
from vramwise.models.operations.norms import RmsNorm
from vramwise.records import record

Source = Literal["own", "kept", "shared"]


@record
class LayerSizes:
    """What differs between layers. `source`: own keys and values, kept ones for later layers, or those of such."""

    full: bool
    groups: int
    head_dim: int
    window: int | None
    source: Source
    inner: int


def norm(b: BlockBuilder, x: Value, module: str) -> Value:
    return b.rms_norm(x, module, style="gemma4")


def sources(c: Config, types: list[str], *, shared: int) -> list[Source]:
    """Where the keys of each layer come from; `shared` is the class's own number of layers without any."""
    own = len(types) - c.size("num_kv_shared_layers", default=shared, least=0)
    kept = {kind: max(i for i in range(own) if types[i] == kind) for kind in set(types[: max(own, 0)])}
    if set(types) != set(kept):
        raise c.error("num_kv_shared_layers: layers that share keys need one of their type before them that does not")
    if own == len(types):
        return ["own"] * own
    return ["shared" if i >= own else "kept" if kept[kind] == i else "own" for i, kind in enumerate(types)]


def keys_and_values(b: BlockBuilder, x: Value, c: Config, s: LayerSizes, table: str) -> tuple[Value, Value]:
    """Keys and values by head; where one product makes both, their norms tell them apart."""
    groups, d, bias = s.groups, s.head_dim, c.flag("attention_bias")
    k = v = b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), groups)
    if not (s.full and c.flag("attention_k_eq_v")):
        v = b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=bias), groups)
    k = b.unary(RotaryByRow(table=table), norm(b, k, "self_attn.k_norm"))
    return b.heads_first(k), b.heads_first(b.unary(RmsNorm(style="gemma4"), v, "self_attn.v_norm"))


def attention(b: BlockBuilder, x: Value, c: Config, s: LayerSizes) -> tuple[Value, dict[str, Value]]:
    """Grouped-query attention with norms of queries, keys and values, and the keys and values for later layers."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, s.groups, s.head_dim, c.flag("attention_bias")
    name = "full" if s.full else "sliding"
    if heads % groups:
        raise c.error(f"{groups} key-value heads of a layer do not divide num_attention_heads ({heads})")
    q = b.heads(b.linear(x, "self_attn.q_proj", heads * d, bias=bias), heads)
    q = b.heads_first(b.unary(RotaryByRow(table=name), norm(b, q, "self_attn.q_norm")))
    if s.source == "shared":
        k, v = b.input(f"{name}_keys", d), b.input(f"{name}_values", d)
    else:
        k, v = keys_and_values(b, x, c, s, name)
    kept = {f"{name}_keys": k, f"{name}_values": v} if s.source == "kept" else {}
    cache = LayerCache("full" if s.full else "sliding", groups, d, d, window=s.window)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=groups,
            window=s.window,
            dropout=c.number("attention_dropout"),
            causal=c.text("use_bidirectional_attention") != "all",
        ),
        q,
        k,
        v,
        cache=LayerCache("none") if s.source == "shared" else cache,
    )
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row"), kept
