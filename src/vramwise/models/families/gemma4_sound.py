"""Gemma 4's tower for sound: a conformer."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config

# Defaults of Gemma4AudioConfig (transformers 5.23).
AUDIO_DEFAULTS: dict[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8, "hidden_act": "silu",
    "subsampling_conv_channels": [128, 32], "conv_kernel_size": 5, "output_proj_dims": 1536,
}  # fmt: skip


def _norm(b: BlockBuilder, x: Value, name: str) -> Value:
    return b.rms_norm(x, name, part="audio")


def _feed_forward(b: BlockBuilder, x: Value, module: str, function: str) -> Value:
    """Half a step: norm, product to four times the width, product back, norm."""
    h = b.linear(_norm(b, x, f"{module}.pre_layer_norm"), f"{module}.ffw_layer_1.linear", 4 * x.width)
    h = b.linear(b.activation(h, function), f"{module}.ffw_layer_2.linear", x.width, shard="row")
    return b.add(x, b.scale(_norm(b, h, f"{module}.post_layer_norm")))


def audio_layer(c: Config, name: str, index: int) -> Block:
    """A conformer's layer: half a feed-forward step, attention in chunks, a convolution, the other half."""
    b = BlockBuilder(f"{name}.layers.{index}", part="audio", modality="audio")
    heads, width, function, kernel = c.num_attention_heads, c.hidden_size, c.text("hidden_act"), "conv_kernel_size"
    x = _feed_forward(b, b.input("audio", width), "feed_forward1", function)
    h = _norm(b, x, "norm_pre_attn")
    q, k, v = (b.heads(b.linear(h, f"self_attn.{n}_proj.linear", width), heads) for n in "qkv")
    q = b.unary("scale_heads", q, "self_attn", [b.parameter("self_attn", "per_dim_scale", (width // heads,))])
    positions = b.linear(h, "self_attn.relative_k_proj", width)
    q, k, v = b.heads_first(q), b.heads_first(k), b.heads_first(v)
    h = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=heads, causal=False, cache=None, others=[positions]
    )  # fmt: skip
    h = b.linear(h, "self_attn.post.linear", width, shard="row")
    x = b.add(x, _norm(b, h, "norm_post_attn"))
    h = b.linear(_norm(b, x, "lconv1d.pre_layer_norm"), "lconv1d.linear_start.linear", 2 * width)
    left, right = b.split(h, [width, width])
    h = b.multiply(left, b.activation(right, "sigmoid"))
    weight = b.parameter("lconv1d.depthwise_conv1d", "weight", (width, 1, c.size(kernel)))
    h = _norm(b, b.unary("convolution", h, "lconv1d.depthwise_conv1d", [weight]), "lconv1d.conv_norm")
    x = b.add(x, b.linear(b.activation(h, function), "lconv1d.linear_end.linear", width, shard="row"))
    return b.build(audio=_norm(b, _feed_forward(b, x, "feed_forward2", function), "norm_out"))


def audio_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Two convolutions that each halve time and bins (128), a product, the layers, a product."""
    if c.hidden_size % c.num_attention_heads:
        raise c.error(f"num_attention_heads ({c.num_attention_heads}) of the audio tower does not divide its width")
    b = BlockBuilder(f"{name}.subsample_conv_projection", part="audio", modality="audio")
    channels = [
        Config({"channels": n}, c.model_id).size("channels") for n in c.items("subsampling_conv_channels") or ()
    ]
    weights = []
    for i, (given, made) in enumerate(zip([1, *channels[:1]], channels, strict=True)):
        weights.append(b.parameter(f"layer{i}.conv", "weight", (made, given, 3, 3)))
        weights.append(b.parameter(f"layer{i}.norm", "weight", (made,)))
    x = b.op("sound", "", [], [channels[0] // 4 * channels[1]], weights)[0]
    first = b.build(audio=b.linear(x, "input_proj_linear", c.hidden_size))
    b = BlockBuilder(name, part="audio", modality="audio")
    last = b.build(
        audio=b.linear(b.input("audio", c.hidden_size), "output_proj", c.size("output_proj_dims"), bias=True)
    )
    return (first, *(audio_layer(c, name, i) for i in range(c.num_hidden_layers)), last)
