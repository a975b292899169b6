"""MobileNet-V5 as timm 1.0.31 runs it in Gemma 3n: (images, channels, height, width) throughout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.images import image_pixels, num_images


@dataclass(frozen=True, slots=True, kw_only=True)
class SquarePixels(Operation):
    side: int


@lowering(SquarePixels)
def square_pixels(run: Lowering, op: SquarePixels) -> Tensor:
    """Pixels of images whose places of the coarsest stage are counted as patches."""
    images = run.execution.images
    assert images is not None
    side = op.side
    return image_pixels(run, num_images(run), op.outputs[0].width, images.rows * side, images.columns * side)


@dataclass(frozen=True, slots=True, kw_only=True)
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
def shared_key_attention(run: Lowering, op: SharedKeyAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
