"""ProphetNet's layers: attention with its residual and norm; a decoder that carries a stream for each next token."""

from __future__ import annotations

from typing import Literal

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.ngram_streams import CONTRACTED, JoinedStreams, NgramAttention, TextAndStreams
from vramwise.models.operations.simple import Hold

Stack = Literal["encoder", "decoder"]


def _heads(c: Config, stack: Stack, width: int) -> int:
    heads = c.size(f"num_{stack}_attention_heads")
    if width % heads:
        raise c.error(f"num_{stack}_attention_heads ({heads}) does not divide hidden_size ({width})")
    return heads


def attention(b: BlockBuilder, c: Config, stack: Stack, module: str, x: Value, source: Value) -> Value:
    """Attention that sees everything, of an encoder to itself or of a decoder to the encoder."""
    heads, width = _heads(c, stack, x.width), x.width
    q, k, v = (
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}_proj", width, bias=True), heads))
        for name, value in (("query", x), ("key", source), ("value", source))
    )
    kind = LayerCache("cross", heads, width // heads, width // heads)
    mixed = b.attention(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=False,
            style=CONTRACTED,
            dropout=c.number("attention_dropout"),
            eager_only=True,
        ),
        q,
        k,
        v,
        module=module,
        cache=kind if stack == "decoder" else None,
    )
    return b.linear(mixed, f"{module}.out_proj", width, bias=True, shard="row")


def ngram_attention(b: BlockBuilder, c: Config, module: str, x: Value) -> Value:
    """Attention of the text and of each stream, by one set of weights, with scored relative positions."""
    heads, width, ngram = _heads(c, "decoder", x.width), x.width, c.size("ngram")
    q, k, v = (b.linear(x, f"{module}.{name}_proj", width, bias=True) for name in ("query", "key", "value"))
    buckets = c.size("num_buckets") * heads
    near = [
        b.linear(piece, f"{module}.relative_pos_embeddings", buckets, bias=True)
        for piece in b.op(TextAndStreams(ngram=ngram), module, [x], [width, width])
    ]
    b.keep(LayerCache("full", heads, width // heads, width // heads))
    dropout = float(c.number("attention_dropout"))
    mixed = b.op(
        NgramAttention(num_heads=heads, ngram=ngram, dropout=dropout), module, [q, k, v, *near], [width, width]
    )
    out = [b.linear(piece, f"{module}.out_proj", width, bias=True, shard="row") for piece in mixed]
    return b.op(JoinedStreams(), module, out, [width])[0]


def half(b: BlockBuilder, c: Config, x: Value, h: Value, module: str) -> Value:
    """What comes after attention or feed-forward: dropout, residual, norm."""
    return b.layer_norm(b.add(b.dropout(h, c.number("dropout")), x), f"{module}_layer_norm")


def layer(c: Config, stack: Stack, index: int, before: int, alone: bool) -> Block:
    """Self-attention, in the decoder cross-attention, feed-forward; norms come after."""
    b = BlockBuilder(f"prophetnet.{stack}.layers.{index}", layer=before + index, part="attention")
    x = b.input("hidden", c.hidden_size)
    own = ngram_attention(b, c, "self_attn", x) if stack == "decoder" else attention(b, c, stack, "self_attn", x, x)
    x = half(b, c, x, own, "self_attn")
    if stack == "decoder" and not alone:
        x = half(b, c, x, attention(b, c, stack, "cross_attn", x, b.input("encoder", x.width)), "cross_attn")
    elif stack == "decoder" and c.flag("add_cross_attention", True):
        aside = BlockBuilder(b.name, b.layer, b.part)
        unused = aside.value(x.width)
        half(aside, c, unused, attention(aside, c, stack, "cross_attn", unused, aside.value(x.width)), "cross_attn")
        x = b.unary(Hold(), x, "cross_attn", [p for op in aside.ops for p in op.parameters])
    b.part, module = "mlp", "feed_forward"
    h = b.linear(x, f"{module}.intermediate", c.size(f"{stack}_ffn_dim"), bias=True)
    h = b.dropout(b.activation(h, c.text("activation_function"), module), c.number("activation_dropout"))
    return b.build(hidden=half(b, c, x, b.linear(h, f"{module}.output", x.width, bias=True, shard="row"), module))
