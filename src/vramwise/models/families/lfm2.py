"""LFM 2: layers of short gated convolutions and of attention, dense or with experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.layer_kinds import layer_kinds
from vramwise.models.layers.routed_experts import Experts, checked, routed_experts
from vramwise.models.layers.short_convolution import short_convolution

_SHARED: dict[str, Any] = {
    "vocab_size": 65_536, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "conv_L_cache": 3,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "lfm2": {
        **_SHARED, "hidden_size": 2560, "intermediate_size": 12_288, "block_multiple_of": 256,
        "block_auto_adjust_ff_dim": True,
    },
    "lfm2_moe": {
        **_SHARED, "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
        "num_dense_layers": 2, "num_experts_per_tok": 4, "num_experts": 32, "use_expert_bias": True,
        "norm_topk_prob": True,
    },
}  # fmt: skip
"""Defaults of the configuration classes (transformers 5.23)."""


def mlp_width(c: Config) -> int:
    """LFM 2 takes two thirds of the width that the config names, times a factor, in whole multiples."""
    width = c.size("block_ff_dim", "intermediate_size")
    if not c.flag("block_auto_adjust_ff_dim"):
        return width
    step = c.size("block_multiple_of")
    width = int(2 * width / 3)
    # An explicit null of the factor leaves the two thirds as they are.
    if "block_ffn_dim_multiplier" in c.values and not c.has("block_ffn_dim_multiplier"):
        return width
    return step * -(-int(c.number("block_ffn_dim_multiplier", 1.0) * width) // step)


def mlp(b: BlockBuilder, x: Value, width: int) -> Value:
    """w2(silu(w1(x)) · w3(x))."""
    b.part = "mlp"
    gate = b.activation(b.linear(x, "feed_forward.w1", width), "silu", "feed_forward")
    h = b.multiply(gate, b.linear(x, "feed_forward.w3", width))
    return b.linear(h, "feed_forward.w2", x.width, shard="row")


def convolution(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(C · conv(B · x)), where (B, C, x) = in(x)."""
    width, kernel, bias = x.width, c.size("conv_L_cache"), c.flag("conv_bias")
    b.part = "mixer"
    joint = b.linear(b.unary("padding_zeroed", x), "conv.in_proj", 3 * width, bias=bias)
    inward, outward, h = b.op("halves", "conv", [b.unary("channels_first", joint)], [width] * 3)
    h = short_convolution(b, b.multiply(inward, h), "conv.conv", kernel, function=None, bias=bias)
    b.keep(LayerCache("recurrent", conv_state_elements=width * kernel))
    h = b.unary("row_major", b.unary("channels_last", b.multiply(outward, h)))
    return b.linear(h, "conv.out_proj", width, bias=bias, shard="row")


def experts(c: Config) -> Experts:
    return checked(c, Experts(
        num_experts=c.size("num_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size"), function="silu", routing="lfm2_moe",
        normalized=c.flag("norm_topk_prob"), router="feed_forward.gate", module="feed_forward.experts",
    ))  # fmt: skip


def layer(c: Config, index: int, kind: str) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "operator_norm")
    if kind == "conv":
        h = convolution(b, h, c)
    else:
        h = grouped_attention(b, h, c, norms=("q_layernorm", "k_layernorm"), output="out_proj")
    x = b.add(h, x)
    h = b.rms_norm(x, "ffn_norm")
    if c.model_type == "lfm2_moe" and index >= c.size("num_dense_layers", least=0):
        h = routed_experts(b, h, experts(c), corrected=c.flag("use_expert_bias"))
    else:
        h = mlp(b, h, mlp_width(c))
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    given = c.values
    c = c.filled(_DEFAULTS[c.model_type])
    if "block_ffn_dim_multiplier" in given and given["block_ffn_dim_multiplier"] is None:
        c = Config({**c.values, "block_ffn_dim_multiplier": None}, c.model_id)
    layers = range(c.num_hidden_layers)
    attending = c.items("full_attn_idxs") or ([] if c.has("full_attn_idxs") else layers)
    default = ["full_attention" if i in attending else "conv" for i in layers]
    kinds = layer_kinds(c, default, allowed=("conv", "full_attention"))
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding("model.embed_tokens", c.vocab_size, c.hidden_size))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), "model.embedding_norm")
    tied_to = "model.embed_tokens.weight" if c.flag("tie_embedding", c.flag("tie_word_embeddings", True)) else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *(layer(c, i, kind) for i, kind in enumerate(kinds)), b.build(logits=logits))
