"""LFM's mixer: a short convolution between two gates, all made by one product."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, Halves, PaddingZeroed, RowMajor


def gated_convolution(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(C · conv(B · x)), where (B, C, x) = in(x)."""
    width, kernel, bias = x.width, c.size("conv_L_cache"), c.flag("conv_bias")
    b.part = "mixer"
    joint = b.linear(b.unary(PaddingZeroed(), x), "conv.in_proj", 3 * width, bias=bias)
    inward, outward, h = b.op(Halves(), "conv", [b.unary(ChannelsFirst(), joint)], [width] * 3)
    h = short_convolution(b, b.multiply(inward, h), "conv.conv", kernel, function=None, bias=bias)
    b.keep(LayerCache("recurrent", conv_state_elements=width * kernel))
    h = b.unary(RowMajor(), b.unary(ChannelsLast(), b.multiply(outward, h)))
    return b.linear(h, "conv.out_proj", width, bias=bias, shard="row")
