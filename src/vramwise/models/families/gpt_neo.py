"""GPT-Neo: GPT-2 with separate projections, unscaled fp32 scores and local attention in some layers."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.gpt2_ends import embedding, head
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.early_attention import GPT_NEO

DEFAULT_TYPES = [[["global", "local"], 12]]


def attention_kinds(c: Config) -> list[str]:
    """`global` or `local` for each layer, from `[[[kinds], times], ...]`."""
    kinds: list[str] = []
    for entry in c.items("attention_types") or DEFAULT_TYPES:
        match entry:
            case [[*names], int(times)] if (
                set(map(str, names)) <= {"global", "local"} and 0 < times <= c.num_hidden_layers
            ):
                kinds += [str(name) for name in names] * times
            case _:
                raise c.error(f'attention_types: expected [[["global", "local"], times], ...], got {entry!r:.60}')
    if len(kinds) != c.num_hidden_layers:
        raise c.error(f"attention_types name {len(kinds)} layers, num_layers is {c.num_hidden_layers}")
    return kinds


def attention(b: BlockBuilder, x: Value, c: Config, kind: str) -> Value:
    """Multi-head attention; every layer holds its own table of which positions see each other, and caches them all."""
    b.part = "attention"
    heads, width = c.heads_of(x.width), x.width
    projected = (b.linear(x, f"attn.attention.{name}_proj", width) for name in "qkv")
    q, k, v = (b.heads_first(b.heads(piece, heads)) for piece in projected)
    window = c.size("window_size", default=256) if kind == "local" else None
    rows = c.size("max_position_embeddings", default=2048)
    b.buffer("attn.attention", "bias", (1, 1, rows, rows), "bool")
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            window=window,
            dropout=c.number("attention_dropout"),
            style=GPT_NEO,
            eager_only=True,
            has_flash=True,
            buffer_rows=rows,
        ),
        q,
        k,
        v,
        module="attn.attention",
        cache=LayerCache("full", heads, q.width, q.width),
    )
    return b.dropout(
        b.linear(mixed, "attn.attention.out_proj", width, bias=True, shard="row"), c.number("resid_dropout")
    )


def layer(c: Config, index: int, kind: str) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"transformer.h.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(attention(b, b.layer_norm(x, "ln_1"), c, kind), x)
    b.part = "mlp"
    h = b.linear(b.layer_norm(x, "ln_2"), "mlp.c_fc", c.size("intermediate_size", default=4 * x.width), bias=True)
    h = b.activation(h, c.text("activation_function", "gelu_new"), "mlp.act")
    h = b.dropout(b.linear(h, "mlp.c_proj", x.width, bias=True, shard="row"), c.number("resid_dropout"))
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    rows = c.size("max_position_embeddings", default=2048)
    first = embedding(c, rows, c.number("embed_dropout"))
    layers = [layer(c, i, kind) for i, kind in enumerate(attention_kinds(c))]
    return (first, *layers, head(c))
