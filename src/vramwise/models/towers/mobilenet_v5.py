"""MobileNet-V5, the image encoder of Gemma 3n, as timm builds it: inverted residuals, attention to shared keys.

Stages, names and shapes: timm 1.0.31, `timm/models/mobilenetv5.py` and `_efficientnet_blocks.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.records import record

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
        return super().value(width)._replace(places=self.places)


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


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class SquarePixels(Operation):
    side: int


@lowering(SquarePixels)
def square_pixels(run: Lowering, op: SquarePixels) -> Tensor:
    """Pixels of images whose places of the coarsest stage are counted as patches."""
    images = run.execution.images
    assert images is not None
    side = op.side
    return image_pixels(run, num_images(run), op.outputs[0].width, images.rows * side, images.columns * side)


@record(kw_only=True, eq=False)
class SameConvolution(Operation):
    stride: int


@lowering(SameConvolution)
def same_convolution(run: Lowering, op: SameConvolution, x: Tensor) -> Tensor:
    """`Conv2dSame`: with a stride the input is padded by a copy first, else by the convolution itself."""
    tape, stride, (weight, *bias) = run.tape, op.stride, run.parameters_of(op)
    kernel, sides = weight.shape[-1], x.shape[2:]
    assert isinstance(kernel, int)
    made = tuple(-(-_whole(side) // stride) for side in sides)
    missing = [max((count - 1) * stride + kernel - _whole(side), 0) for count, side in zip(made, sides, strict=True)]
    if stride > 1 and any(missing):
        shape = (*x.shape[:2], *(side + extra for side, extra in zip(sides, missing, strict=True)))
        padded = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="constant_pad_nd")
        tape.record("constant_pad_nd", [x], [padded])
        x = padded
    return tape.conv2d_to(x, weight, bias[0] if bias else None, *made)


class ChannelNorm(Operation):
    __slots__ = ()


@lowering(ChannelNorm)
def channel_norm(run: Lowering, op: ChannelNorm, x: Tensor) -> Tensor:
    """`rms_norm2d`: a root-mean-square norm over channels in the input's dtype."""
    tape, (weight,) = run.tape, run.parameters_of(op)
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", x), 1), "add_scalar")
    x = tape.mul(x, tape.unary("rsqrt", variance))
    return tape.mul(x, tape.view(weight, 1, weight.shape[0], 1, 1))


class ChannelScale(Operation):
    __slots__ = ()


@lowering(ChannelScale)
def channel_scale(run: Lowering, op: ChannelScale, x: Tensor) -> Tensor:
    """A learned factor for each channel."""
    (factor,) = run.parameters_of(op)
    return run.tape.mul(x, run.tape.view(factor, 1, factor.shape[0], 1, 1))


class SharedKeyAttention(HeadedAttention):
    __slots__ = ()


@lowering(SharedKeyAttention)
def shared_key_attention_lowered(run: Lowering, op: SharedKeyAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`scaled_dot_product_attention` of many heads to one, which no kernel but the plain products takes."""
    tape, heads, (n, width, rows, columns) = run.tape, op.num_heads, q.shape
    d = width // heads
    q = tape.contiguous(tape.transpose(tape.reshape(q, n, heads, d, rows * columns), 2, 3))
    k, v = (
        tape.contiguous(tape.unsqueeze(tape.transpose(tape.reshape(x, n, d, x.shape[2] * x.shape[3]), 1, 2), 1))
        for x in (k, v)
    )
    mixed = tape.sdpa(q, k, v, backend="math")
    places = tape.reshape(tape.transpose(mixed, 1, 2), n, rows, columns, width)
    return tape.contiguous(tape.permute(places, 0, 3, 1, 2))


class JoinedScales(Operation):
    __slots__ = ()


@lowering(JoinedScales)
def joined_scales(run: Lowering, op: JoinedScales, finer: Tensor, coarser: Tensor) -> Tensor:
    """The coarser stage enlarged by copies of its nearest places, channels side by side."""
    tape = run.tape
    shape = (*coarser.shape[:2], *finer.shape[2:])
    enlarged = tape.new(shape, coarser.dtype, requires_grad=coarser.requires_grad, op="upsample_nearest2d")
    tape.record("upsample_nearest2d", [coarser], [enlarged])
    return tape.cat([finer, enlarged], 1)


@record(kw_only=True, eq=False)
class PoolToGrid(Operation):
    grid: int


@lowering(PoolToGrid)
def pool_to_grid(run: Lowering, op: PoolToGrid, x: Tensor) -> Tensor:
    """`avg_pool2d` to so many places on a side, which keeps its operand; nothing where there are as many."""
    side = op.grid
    if x.shape[2:] == (side, side):
        return x
    out = run.tape.new((*x.shape[:2], side, side), x.dtype, requires_grad=x.requires_grad, op="avg_pool2d")
    run.tape.record("avg_pool2d", [x], [out], [(x, "self")])
    return out


class PlacesAsTokens(Operation):
    __slots__ = ()


@lowering(PlacesAsTokens)
def places_as_tokens(run: Lowering, op: PlacesAsTokens, x: Tensor) -> Tensor:
    """(images, places, channels), a view, times a root in place."""
    tape, (n, width, rows, columns) = run.tape, x.shape
    x = tape.permute(tape.reshape(x, n, width, rows * columns), 0, 2, 1)
    out = replace(x)
    tape.record("mul_", [x], [out])
    return out


def _whole(size: Dim) -> int:
    assert isinstance(size, int)
    return size
