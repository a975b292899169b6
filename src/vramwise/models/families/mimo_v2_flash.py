"""MiMo V2 Flash: sliding layers with sinks and twice the key-value heads, experts chosen by sigmoid scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, LayerKind
from vramwise.models.layers.mixture import Parts, sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.layers.windows import typed_layers
from vramwise.models.operations.latent import SinkAttention


class Heads(NamedTuple):
    """Heads of one kind of layer: how many ask, how many are asked, how wide they are, and whether one sinks."""

    asking: int
    asked: int
    head_dim: int
    value_dim: int
    sinks: bool


def heads_of(c: Config, kind: LayerKind) -> Heads:
    """Sliding layers have twice the key-value heads, and the sinks."""
    groups = c.num_key_value_heads * (2 if kind.window else 1)
    return Heads(
        c.num_attention_heads, groups, c.head_dim, c.size("v_head_dim", default=128), sinks=kind.window is not None
    )


def attention(b: BlockBuilder, x: Value, *, c: Config, kind: LayerKind, own: Heads, columns: int) -> Value:
    """Grouped-query attention with scaled values; `sinks` are one learned score more for each head."""
    b.part = "attention"
    heads, groups, d, value_dim, sinks = own
    bias = c.flag("attention_bias")
    if heads % groups:
        raise c.error(f"{groups} key-value heads of a layer do not divide num_attention_heads ({heads})")
    q, k, v = (
        b.heads_first(b.heads(b.linear(x, f"self_attn.{name}_proj", count * width, bias=bias), count))
        for name, count, width in (("q", heads, d), ("k", groups, d), ("v", groups, value_dim))
    )
    style = "half_joined" if columns == d else "half"
    q, k = b.rotary(q, k, rotary_dim=columns, style=style, table=kind.table)
    b.keep(LayerCache("sliding" if kind.window else "full", groups, d, value_dim, window=kind.window))
    parameters = [b.parameter("self_attn", "sinks", (heads,), shard="column")] if sinks else []
    mixed = b.op(
        SinkAttention(
            num_heads=heads,
            num_key_value_heads=groups,
            causal=True,
            window=kind.window,
            dropout=c.number("attention_dropout"),
            one_name=True,
        ),
        "self_attn",
        [q, k, b.scale(v)],
        [heads * value_dim],
        parameters,
    )[0]
    return b.linear(mixed, "self_attn.o_proj", x.width, shard="row")


def parts(c: Config, count: int | None, heads: Callable[[Config, LayerKind], Heads] = heads_of) -> Parts:
    """Layers of both kinds turn a part of each head."""
    layers = range(c.num_hidden_layers)
    default = ["sliding_attention" if i and (i + 1) % 6 else "full_attention" for i in layers]
    window = c.size("sliding_window_size", default=c.size("sliding_window", default=129) - 1) + 1
    c = Config({**c.values, "sliding_window": window}, c.model_id)
    kinds, rope = [], c.table("rope_parameters")
    for kind in typed_layers(c, default, tables=True):
        turned: dict[str, Any] = (rope.get(kind.table) if rope else None) or {"partial_rotary_factor": 0.334}
        own = heads(c, kind)
        columns = -(-int(own.head_dim * turned.get("partial_rotary_factor", 1.0)) // 2) * 2
        build = partial(attention, c=c, kind=kind, own=own, columns=columns)
        kinds.append(replace(kind, attention=build))
    m = replace(deepseek_style(c, count), shared=0)
    return Design(), m, sparse_layers(c, 1), kinds


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    return mixture.model(c, *parts(c, count))
