"""The two halves of LFM's layers: short gated convolutions, and a gated MLP with names of its own."""

from __future__ import annotations

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.short_convolution import short_convolution


def mlp(b: BlockBuilder, x: Value, *, width: int) -> Value:
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
