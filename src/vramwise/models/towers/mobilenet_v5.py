"""MobileNet-V5, the image encoder of Gemma 3n, as timm builds it: inverted residuals, attention to shared keys.

Stages, names and shapes: timm 1.0.31, `timm/models/mobilenetv5.py` and `_efficientnet_blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.convolutions import (
    ChannelNorm,
    ChannelScale,
    JoinedScales,
    PlacesAsTokens,
    PoolToGrid,
    SameConvolution,
    SharedKeyAttention,
    SquarePixels,
)

ARCHITECTURE = "mobilenetv5_300m_enc"
GRID = 16
"""Places of the result on a side, whatever the image's size."""
_STEM, WIDTH, _EXPANSION = 64, 2048, 2
_FUNCTION = "gelu_pytorch_tanh"
_ATTENTION = ((640, 12, 64, 3), (1280, 16, 96, 0))
"""Width, heads, columns of a head and the kernel that thins keys out, of the stages with attention."""
_FINER, _COARSER = "image at the finer scale", "image at the coarser scale"

_PIXELS = 32
"""Pixels on a side of a place of the last stage, the coarsest."""


@dataclass
class _Maker(BlockBuilder):
    """Says of every value how many places it has for each place of the coarsest stage."""

    places: int = 1

    def value(self, width: int) -> Value:
        return replace(super().value(width), places=self.places)


Layer = Callable[[_Maker, Value], Value]
"""A block of a stage: values of (images, channels, height, width) in and out."""


def _convolution(
    b: _Maker, x: Value, name: str, out: int, kernel: int = 1, *, stride: int = 1, by_channel: bool = False,
    bias: bool = False,
) -> Value:  # fmt: skip
    weights = [b.parameter(name, "weight", (out, 1 if by_channel else x.width, kernel, kernel))]
    weights += [b.parameter(name, "bias", (out,))] if bias else []
    b.places //= stride**2
    return b.unary(SameConvolution(stride=stride), x, name, weights, out)


def _norm(b: _Maker, x: Value, name: str) -> Value:
    return b.unary(ChannelNorm(), x, name, [b.parameter(name, "weight", (x.width,))])


def _normed(
    b: _Maker, x: Value, name: str, out: int, kernel: int = 1, *, stride: int = 1, by_channel: bool = False,
    activated: bool = False,
) -> Value:  # fmt: skip
    """A convolution, its norm, and a function where it is `activated`."""
    x = _convolution(b, x, f"{name}.conv", out, kernel, stride=stride, by_channel=by_channel)
    x = _norm(b, x, f"{name}.bn")
    return b.activation(x, _FUNCTION, f"{name}.bn.act") if activated else x


def _scaled(b: _Maker, x: Value) -> Value:
    return b.unary(ChannelScale(), x, "layer_scale", [b.parameter("layer_scale", "gamma", (x.width,))])


def edge_residual(b: _Maker, x: Value, *, out: int, stride: int = 1) -> Value:
    """A convolution to four times the width given, and a product to the width made."""
    h = _norm(b, _convolution(b, x, "conv_exp", 4 * x.width, 3, stride=stride), "bn1")
    h = _norm(b, _convolution(b, b.activation(h, _FUNCTION, "bn1.act"), "conv_pwl", out), "bn2")
    return b.add(h, x) if stride == 1 and out == x.width else h


def inverted_residual(
    b: _Maker, x: Value, *, out: int, expansion: int, start: int = 0, mid: int = 0, stride: int = 1,
    within: str = "", bare: bool = False,
) -> Value:  # fmt: skip
    """Products to a multiple of the width and back, convolutions by channel (`start`, `mid`: kernels) before each.

    `bare`: neither scaled nor added to what came in.
    """
    h, inner = x, expansion * x.width
    if start:
        h = _normed(b, h, f"{within}dw_start", x.width, start, by_channel=True)
    h = _normed(b, h, f"{within}pw_exp", inner, activated=True)
    if mid:
        h = _normed(b, h, f"{within}dw_mid", inner, mid, stride=stride, by_channel=True, activated=True)
    h = _normed(b, h, f"{within}pw_proj", out)
    if bare:
        return h
    h = _scaled(b, h)
    return b.add(h, x) if stride == 1 and out == x.width else h


def shared_key_attention(b: _Maker, x: Value, *, heads: int, head_dim: int, kernel: int) -> Value:
    """One head of keys and values for all queries, made of fewer places where a kernel thins them out."""
    normed = _norm(b, x, "norm")
    q = _convolution(b, normed, "attn.query.proj", heads * head_dim)
    pair, places = [], b.places
    for name in ("key", "value"):
        h = normed
        if kernel:
            h = _convolution(b, h, f"attn.{name}.down_conv", x.width, kernel, stride=2, by_channel=True)
            h = _norm(b, h, f"attn.{name}.norm")
        pair.append(_convolution(b, h, f"attn.{name}.proj", head_dim))
        b.places = places
    mixed = b.op(SharedKeyAttention(num_heads=heads), "attn", [q, *pair], [q.width])[0]
    return b.add(_scaled(b, _convolution(b, mixed, "attn.output.proj", x.width)), x)


def stages() -> list[list[Layer]]:
    """The blocks of the four stages, each of which halves the sides first."""
    residual = inverted_residual
    first: list[Layer] = [partial(edge_residual, out=128, stride=1 + (i == 0)) for i in range(3)]
    second: list[Layer] = [partial(residual, out=256, expansion=6, start=3, mid=5, stride=2)]
    second += [partial(residual, out=256, expansion=4, start=kernel) for kernel in (5, 3, 5, 3)]
    third: list[Layer] = [partial(residual, out=640, expansion=6, start=5, mid=5, stride=2)]
    third += [partial(residual, out=640, expansion=4, start=5)] * 7 + [partial(residual, out=640, expansion=1)]
    fourth: list[Layer] = [partial(residual, out=1280, expansion=6, start=5, mid=5, stride=2)]
    for stage, pairs, (width, heads, head_dim, kernel) in zip((third, fourth), (14, 19), _ATTENTION, strict=True):
        attention = partial(shared_key_attention, heads=heads, head_dim=head_dim, kernel=kernel)
        stage += [attention, partial(residual, out=width, expansion=2)] * pairs
    return [first, second, third, fourth]


def tower(c: Config, name: str) -> tuple[Block, ...]:
    """The blocks of the tower that `vision_config` names."""
    given = c.text("architecture", ARCHITECTURE)
    if given != ARCHITECTURE or c.get("model_args"):
        raise c.error(f"vision_config: of timm's architectures {ARCHITECTURE} without model_args is described")
    b = _Maker(name, part="vision", modality="image", places=_PIXELS**2)
    pixels = b.op(SquarePixels(side=_PIXELS), "", [], [3])[0]
    h = _norm(b, _convolution(b, pixels, "conv_stem.conv", _STEM, 3, stride=2, bias=True), "conv_stem.bn")
    blocks, width, places = [b.build(image=b.activation(h, _FUNCTION, "conv_stem.bn.act"))], _STEM, b.places
    for s, stage in enumerate(stages()):
        for i, layer in enumerate(stage):
            b = _Maker(f"{name}.blocks.{s}.{i}", part="vision", modality="image", places=places)
            x = layer(b, b.input("image", width))
            width, places = x.width, b.places
            if s >= 2 and i + 1 == len(stage):
                b.hand_on(_FINER if s == 2 else _COARSER, x)
            blocks.append(b.build(image=x))
    return (*blocks, _fusion(f"{name}.msfa"))


def _fusion(name: str) -> Block:
    """The last two stages side by side, widened, brought to one number of places."""
    b = _Maker(name, part="vision", modality="image", places=4)
    (finer, *_), (coarser, *_) = _ATTENTION
    streams = [b.input(_FINER, finer), b.input(_COARSER, coarser)]
    x = b.op(JoinedScales(), "", streams, [finer + coarser])[0]
    x = inverted_residual(b, x, out=WIDTH, expansion=_EXPANSION, within="ffn.", bare=True)
    x = _norm(b, b.unary(PoolToGrid(grid=GRID), x, ""), "norm")
    return b.build(image=b.unary(PlacesAsTokens(), x))
