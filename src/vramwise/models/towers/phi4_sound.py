"""Phi-4 multimodal's tower for sound: a conformer."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.attention import Attention
from vramwise.models.operations.encoders import Convolution, Sound
from vramwise.models.operations.undescribed import Undescribed

# Defaults of Phi4MultimodalAudioConfig (transformers 5.23).
AUDIO_DEFAULTS: dict[str, object] = {
    "hidden_size": 1024, "intermediate_size": 1536, "num_blocks": 24, "num_attention_heads": 16, "input_size": 80,
    "activation": "swish", "ext_pw_out_channel": 1024, "depthwise_separable_out_channel": 1024,
    "depthwise_multiplier": 1, "kernel_size": 3, "time_reduction": 8, "bias_max_distance": 1000,
    "nemo_conv_channels": 1024,
}  # fmt: skip


def _convolution(b: BlockBuilder, x: Value, module: str, shape: tuple[int, ...]) -> Value:
    weights = [b.parameter(module, "weight", shape), b.parameter(module, "bias", shape[:1])]
    return b.unary(Convolution(), x, module, weights, shape[0])


def subsampling(c: Config, name: str) -> Block:
    """Convolutions that each halve time and bins, after the first one by channel, and a table of distances."""
    b = BlockBuilder(name, part="audio", modality="audio")
    channels, bins, times = (
        c.size("nemo_conv_channels"),
        c.size("input_size"),
        c.size("time_reduction").bit_length() - 1,
    )
    x = _convolution(b, b.op(Sound(), "", [], [1])[0], "embed.conv.0", (channels, 1, 3, 3))
    for i in range(times - 1):
        x = _convolution(b, x, f"embed.conv.{2 + 3 * i}", (channels, 1, 3, 3))
        x = _convolution(b, x, f"embed.conv.{3 + 3 * i}", (channels, channels, 1, 1))
    for _ in range(times):
        bins = (bins - 1) // 2 + 1
    x = b.linear(
        b.unary(Undescribed(name="joined bins of frequency"), x, width=channels * bins),
        "embed.out",
        c.hidden_size,
        bias=True,
    )
    rows = c.size("bias_max_distance") * (1 if c.flag("bias_symmetric") else 2)
    table = b.parameter("relative_attention_bias_layer.bias_values", "weight", (rows, c.num_attention_heads))
    return b.build(audio=b.unary(Undescribed(name="biases by distance"), x, "relative_attention_bias_layer", [table]))


def _feed_forward(b: BlockBuilder, x: Value, c: Config, module: str) -> Value:
    width = c.intermediate_size
    h = b.linear(b.layer_norm(x, f"{module}.layer_norm", part="audio"), f"{module}.gate_up_proj", 2 * width, bias=True)
    up, gate = b.split(h, [width, width])
    h = b.multiply(up, b.activation(gate, c.text("activation")))
    return b.add(x, b.scale(b.linear(h, f"{module}.down_proj", x.width, bias=True, shard="row")))


def _convolutions(b: BlockBuilder, x: Value, c: Config) -> Value:
    """A gated convolution of one step, one over time by channel, two of one step."""
    width, out, inner = x.width, c.size("ext_pw_out_channel"), x.width * c.size("depthwise_multiplier")
    separable = c.size("depthwise_separable_out_channel")
    h = _convolution(
        b, b.layer_norm(x, "conv.layer_norm", part="audio"), "conv.glu.ext_pw_conv_1d", (2 * out, width, 1)
    )
    left, right = b.split(h, [out, out])
    biases = [b.parameter("conv.glu", name, (1, out, 1)) for name in ("b1", "b2")]
    h = b.op(Undescribed(name="gates of a tower of sound"), "conv.glu", [left, right], [out], biases)[0]
    h = _convolution(b, h, "conv.dw_sep_conv_1d.dw_conv", (inner, 1, c.size("kernel_size")))
    h = _convolution(b, h, "conv.dw_sep_conv_1d.pw_conv", (separable, inner, 1))
    return b.add(x, _convolution(b, b.activation(h, "silu"), "conv.ext_pw_conv_1d", (out, width, 1)))


def audio_layer(c: Config, name: str, index: int) -> Block:
    """Half a feed-forward step, attention, convolutions, the other half, a norm."""
    b = BlockBuilder(f"{name}.encoders.{index}", part="audio", modality="audio")
    heads, width = c.num_attention_heads, c.hidden_size
    x = _feed_forward(b, b.input("audio", width), c, "feed_forward_in")
    h = b.layer_norm(x, "layer_norm_att", part="audio")
    q, k, v = (b.heads_first(b.heads(b.linear(h, f"self_attn.{n}_proj", width, bias=True), heads)) for n in "qkv")
    h = b.attention(Attention(num_heads=heads, num_key_value_heads=heads, causal=False), q, k, v, cache=None)
    x = _convolutions(b, b.add(x, b.linear(h, "self_attn.o_proj", width, bias=True, shard="row")), c)
    x = _feed_forward(b, x, c, "feed_forward_out")
    return b.build(audio=b.layer_norm(x, "layer_norm", part="audio"))
