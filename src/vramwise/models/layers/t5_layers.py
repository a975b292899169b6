"""Layers of T5 and its relatives: attention with learned biases for distances, feed-forward, each pre-norm.

Streams: `position_bias` and `cross_bias` are made by the first layer of a stack for all of its layers.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.t5_stack import Stack
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.relative_bias import LONG_T5, T5, ClampFp16, RelativePositionBias, ZeroPositionBias
from vramwise.models.operations.simple import ToParameterDtype

WRITTEN_OUT = frozenset({"longt5", "switch_transformers"})
"""Types whose classes take no other attention than their own, and do not clamp what they add to the stream."""


def attention(
    b: BlockBuilder, c: Config, stack: Stack, x: Value, source: Value, bias: Value, module: str
) -> Value:  # fmt: skip
    """Attention of `x` to itself or, in the decoder, to the encoder's result; `bias` is added to the scores."""
    heads, width, cross = c.num_attention_heads, c.size("d_kv"), source is not x
    b.part = "attention"
    q, k, v = (
        b.heads_first(b.heads(b.linear(value, f"{module}.{name}", heads * width), heads))
        for name, value in (("q", x), ("k", source), ("v", source))
    )
    if stack.is_decoder:
        b.keep(LayerCache("cross" if cross else "full", heads, width, width))
    dropout = c.number("dropout_rate")
    (mixed,) = b.op(
        Attention(
            num_heads=heads,
            num_key_value_heads=heads,
            causal=stack.is_decoder and not cross,
            cross=cross,
            window=None,
            style=LONG_T5 if c.model_type == "longt5" else T5,
            dropout=dropout,
            eager_only=c.model_type in WRITTEN_OUT,
        ),
        module,
        [q, k, v, bias],
        [heads * width],
    )
    return b.dropout(b.linear(mixed, f"{module}.o", c.hidden_size, shard="row"), dropout)


def relative_bias(b: BlockBuilder, c: Config, stack: Stack) -> Value:
    """A learned number for each head and bucket of distances, spread over all pairs of positions."""
    heads, module = c.num_attention_heads, "layer.0.SelfAttention.relative_attention_bias"
    shape = (c.size("relative_attention_num_buckets"), heads)
    table = b.parameter(module, "weight", shape, part="attention", shard="row")
    return b.op(RelativePositionBias(stack=stack.name), module, [], [heads], [table])[0]


def feed_forward(b: BlockBuilder, c: Config, x: Value, module: str) -> Value:
    """wo(act(wi(x))), or wo(act(wi_0(x)) · wi_1(x)) where `feed_forward_proj` says gated."""
    kind, dropout, width = c.text("feed_forward_proj"), c.number("dropout_rate"), c.size("d_ff")
    gated, _, function = kind.rpartition("-")
    if gated not in ("", "gated"):
        raise c.error(f'feed_forward_proj: expected "<activation>" or "gated-<activation>", got {kind!r:.60}')
    function = "gelu_new" if kind == "gated-gelu" else function
    b.part, module = "mlp", f"{module}.DenseReluDense"
    h = b.activation(b.linear(x, f"{module}.{'wi_0' if gated else 'wi'}", width), function, f"{module}.act")
    if gated:
        h = b.multiply(h, b.linear(x, f"{module}.wi_1", width))
    h = b.unary(ToParameterDtype(), b.dropout(h, dropout))
    return b.dropout(b.linear(h, f"{module}.wo", x.width, shard="row"), dropout)


def layer(
    c: Config, stack: Stack, index: int, *, near: Callable[[BlockBuilder, Value], Value] | None = None,
    mlp: Callable[[BlockBuilder, Value, str], Value] | None = None,
) -> Block:  # fmt: skip
    """Self-attention, in the decoder cross-attention, feed-forward; each pre-norm with a residual around it.

    `near` and `mlp` stand in place of self-attention and of the feed-forward.
    """
    b = BlockBuilder(f"{stack.name}.block.{index}", layer=stack.first_layer + index)
    x, made = b.input("hidden", c.hidden_size), {}
    each = c.model_type == "umt5"  # biases of its own in every layer
    first, heads = each or index == 0, c.num_attention_heads
    if near is not None:
        x = b.add(x, near(b, b.rms_norm(x, "layer.0.layer_norm", style="t5")))
    else:
        bias = relative_bias(b, c, stack) if first else b.input("position_bias", heads)
        made["position_bias"] = bias
        h = b.rms_norm(x, "layer.0.layer_norm", style="t5")
        x = added(b, c, x, attention(b, c, stack, h, h, bias, "layer.0.SelfAttention"))
    if stack.is_decoder:
        encoder = b.input("encoder", c.hidden_size)
        h = b.rms_norm(x, "layer.1.layer_norm", style="t5")
        bias = b.unary(ZeroPositionBias(wanted=not each), h, width=heads) if first else b.input("cross_bias", heads)
        made["cross_bias"] = bias
        x = added(b, c, x, attention(b, c, stack, h, encoder, bias, "layer.1.EncDecAttention"))
    last = f"layer.{2 if stack.is_decoder else 1}"
    h = b.rms_norm(x, f"{last}.layer_norm", style="t5")
    x = added(b, c, x, mlp(b, h, last) if mlp else feed_forward(b, c, h, last))
    return b.build(hidden=x, **(made if first and not each else {}))


def added(b: BlockBuilder, c: Config, x: Value, h: Value) -> Value:
    """The stream plus a part of the layer, in T5's own classes clamped to what fp16 holds."""
    x = b.add(x, h)
    return x if c.model_type in WRITTEN_OUT else b.unary(ClampFp16(), x)
