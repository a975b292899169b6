"""Parakeet with CTC: a FastConformer over frames of sound and a product to tokens; all of part `audio`.

The parameters are those of `ParakeetForCTC` in transformers 5.23; what training keeps is not described.
"""

from __future__ import annotations

import math

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.undescribed import Undescribed

CLASS_DEFAULTS: dict[str, object] = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 8, "intermediate_size": 4096,
    "conv_kernel_size": 9, "subsampling_factor": 8, "subsampling_conv_channels": 256, "num_mel_bins": 80,
    "subsampling_conv_kernel_size": 3, "subsampling_conv_stride": 2,
}  # fmt: skip
"""Defaults of `ParakeetEncoderConfig`."""
Weight = tuple[str, tuple[int, ...]]


def task(c: Config) -> str:
    """It predicts no tokens one after another."""
    return "none"


def _with_bias(name: str, bias: bool, *shape: int) -> list[Weight]:
    return [(f"{name}.weight", shape), *([(f"{name}.bias", shape[:1])] if bias else [])]


def subsampling(c: Config) -> list[Weight]:
    """Convolutions that each halve time and pitch, by channel but for the first, and a product."""
    channels, kernel = c.size("subsampling_conv_channels"), c.size("subsampling_conv_kernel_size")
    factor, stride = c.size("subsampling_factor"), c.size("subsampling_conv_stride")
    count = int(math.log2(factor))
    found = _with_bias("layers.0", True, channels, 1, kernel, kernel)
    for index in range(count - 1):
        found += _with_bias(f"layers.{3 * index + 2}", True, channels, 1, kernel, kernel)
        found += _with_bias(f"layers.{3 * index + 3}", True, channels, channels, 1, 1)
    pitches = c.size("num_mel_bins") // stride**count
    if not pitches:
        raise c.error(f"subsampling_factor ({factor}) leaves nothing of num_mel_bins ({c.size('num_mel_bins')})")
    return [*found, *_with_bias("linear", True, c.hidden_size, channels * pitches)]


def layer(c: Config) -> list[Weight]:
    """Two feed-forward halves, attention by relative places and a convolution between them, norms before each."""
    width, inner, bias, convolved = (
        c.hidden_size, c.intermediate_size, c.flag("attention_bias", True), c.flag("convolution_bias", True)
    )  # fmt: skip
    heads, kernel = c.heads_of(c.hidden_size), c.size("conv_kernel_size")
    d = width // heads
    found: list[Weight] = []
    for half in ("feed_forward1", "feed_forward2"):
        found += _with_bias(f"{half}.linear1", bias, inner, width)
        found += _with_bias(f"{half}.linear2", bias, width, inner)
    found += [("self_attn.bias_u", (heads, d)), ("self_attn.bias_v", (heads, d))]
    for name in ("q", "k", "v", "o"):
        found += _with_bias(f"self_attn.{name}_proj", bias, width, width)
    found += _with_bias("self_attn.relative_k_proj", False, width, width)
    found += _with_bias("conv.pointwise_conv1", convolved, 2 * width, width, 1)
    found += _with_bias("conv.depthwise_conv", convolved, width, 1, kernel)
    found += _with_bias("conv.norm", True, width)
    found += _with_bias("conv.pointwise_conv2", convolved, width, width, 1)
    for name in ("feed_forward1", "self_att", "conv", "feed_forward2", "out"):
        found += _with_bias(f"norm_{name}", True, width)
    return found


def _block(name: str, weights: list[Weight], what: str, index: int | None = None) -> Block:
    b = BlockBuilder(name, layer=index, part="audio", modality="audio")
    b.op(Undescribed(name=what), "", [], [], [b.parameter("", leaf, shape) for leaf, shape in weights])
    return b.build()


def blocks(c: Config) -> tuple[Block, ...]:
    """Subsampling, layers, and a product to each token and to none."""
    e = (c.table("encoder_config") or Config({}, c.model_id)).filled(CLASS_DEFAULTS)
    vocabulary = c.size("vocab_size", default=1025)
    first = _block("encoder.subsampling", subsampling(e), "convolutions over frames")
    layers = (_block(f"encoder.layers.{i}", layer(e), "a layer over frames", i) for i in range(e.num_hidden_layers))
    last = _block("ctc_head", [("weight", (vocabulary, e.hidden_size, 1)), ("bias", (vocabulary,))], "tokens")
    return (first, *layers, last)
