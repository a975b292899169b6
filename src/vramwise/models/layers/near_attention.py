"""LongT5's encoder attends to a neighbourhood, and in the transient-global kind to means of blocks as well."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.near_attention import BlockMeans, NearAttention, NearBias

_KINDS = {"local": "LocalSelfAttention", "transient-global": "TransientGlobalSelfAttention"}
NEAR_BIAS = "near_bias"
"""The stream of position biases of LongT5's encoder, made by its first layer."""


def near_attention(b: BlockBuilder, x: Value, *, c: Config, index: int) -> Value:
    """Attention to a neighbourhood, and in the transient-global kind to means of blocks."""
    kind = c.text("encoder_attention_type")
    if kind not in _KINDS:
        raise c.error(f"encoder_attention_type: expected {' or '.join(_KINDS)}, got {kind!r:.40}")
    b.part, module = "attention", f"layer.0.{_KINDS[kind]}"
    heads, inner = c.num_attention_heads, c.num_attention_heads * c.size("d_kv")
    sizes: dict[str, Any] = {"chunk_size": c.size("local_radius") + 1, "means_of": c.size("global_block_size")}
    pieces = [b.linear(x, f"{module}.{name}", inner) for name in "qkv"]
    if kind != "local":
        means = b.unary(BlockMeans(means_of=sizes["means_of"]), x, module)
        means = b.rms_norm(means, f"{module}.global_input_layer_norm", style="t5")
        pieces += [b.linear(means, f"{module}.{name}", inner) for name in "kv"]
    if index == 0:
        names = ("relative_attention_bias", "global_relative_attention_bias")
        shape = (c.size("relative_attention_num_buckets"), heads)
        tables = [b.parameter(f"{module}.{n}", "weight", shape) for n in names[: 1 if kind == "local" else 2]]
        bias = b.op(NearBias(**sizes), module, [], [heads], tables)[0]
        b.hand_on(NEAR_BIAS, bias)
    else:
        bias = b.input(NEAR_BIAS, heads)
    mixed = b.op(
        NearAttention(num_heads=heads, dropout=c.number("dropout_rate"), **sizes), module, [*pieces, bias], [inner]
    )[0]
    return b.dropout(b.linear(mixed, f"{module}.o", x.width, shard="row"), c.number("dropout_rate"))
