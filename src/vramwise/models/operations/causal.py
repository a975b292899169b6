"""Operations of causal video decoders as diffusers 0.42 runs them: convolutions that keep the last frames they saw."""

from __future__ import annotations

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.latents import convolved, whole
from vramwise.records import record

_KEPT = 2
"""`CACHE_T`: frames that a convolution keeps."""


@record(kw_only=True, eq=False)
class CausalConvolution(Operation):
    """`CausalConv3d` over (batch, channels, frames, rows, columns), padded at rows and columns and before the frames.

    With `keeps` it hands on the last two frames that it read, and reads those of the call before where they are given;
    `begins`: the frame before the first one is zeros.
    """

    padding: tuple[int, int, int]
    keeps: bool = False
    begins: bool = False


@lowering(CausalConvolution)
def causal_convolution(run: Lowering, op: CausalConvolution, x: Tensor, *before: Tensor) -> tuple[Tensor, ...]:
    tape, module = run.tape, run.tape.module
    kept: tuple[Tensor, ...] = ()
    if op.keeps:
        with tape.inside(module.rpartition(".")[0]):
            kept = (_last_frames(tape, x, before[0] if before else None, begins=op.begins),)
    weight, *bias = run.parameters_of(op)
    joined = tape.cat([before[0], x], 2) if before and op.padding[0] else x
    frames = 2 * op.padding[0] - (whole(before[0].shape[2]) if before and op.padding[0] else 0)
    sides = [whole(side) + 2 * pad for side, pad in zip(joined.shape[3:], op.padding[1:], strict=True)]
    shape = (*joined.shape[:2], whole(joined.shape[2]) + frames, *sides)
    padded = tape.new(shape, x.dtype, op="constant_pad_nd")
    tape.record("constant_pad_nd", [joined], [padded])
    out = convolved(tape, padded, weight, bias[0] if bias else None, (1, 1, 1), (0, 0, 0))
    tape.record("locals", [padded], [])
    with tape.inside(module.rpartition(".")[0]):
        tape.record("locals", [x, *before], [])
    return (out, *kept)


def _last_frames(tape: Tape, x: Tensor, before: Tensor | None, *, begins: bool) -> Tensor:
    """A copy of the last two frames; of a single one with the last of the call before, or zeros, in front."""
    last = tape.clone_contiguous(tape.narrow(x, 2, min(_KEPT, whole(x.shape[2]))))
    if whole(last.shape[2]) == _KEPT or (before is None and not begins):
        return last
    first = tape.like(last, requires_grad=False, op="zeros_like") if before is None else tape.narrow(before, 2, 1)
    if before is None:
        tape.record("empty_like", [last], [first])
    return tape.cat([first, last], 2)


class ChannelsNormed(Operation):
    """normalize(x, channels) · scale · gamma + 0: worked out in fp32, each product a tensor of its own."""

    __slots__ = ()
    is_norm = True


@lowering(ChannelsNormed)
def channels_normed(run: Lowering, op: ChannelsNormed, x: Tensor) -> Tensor:
    tape, (gamma,) = run.tape, run.parameters_of(op)
    wide = tape.to(x, "fp32")
    length = tape.new((x.shape[0], 1, *x.shape[2:]), "fp32", op="linalg_vector_norm")
    tape.record("linalg_vector_norm", [wide], [length])
    quotient = tape.div(wide, tape.unary("clamp", length))
    tape.record("locals", [wide, length], [])
    normed = tape.to(quotient, x.dtype)
    h = tape.scale(tape.mul(tape.scale(normed), gamma), "add_scalar")
    tape.record("locals", [normed], [])
    return h


class FramesAsImages(Operation):
    """(batch, channels, frames, rows, columns) as images (batch · frames, channels, rows, columns)."""

    __slots__ = ()


@lowering(FramesAsImages)
def frames_as_images(run: Lowering, op: FramesAsImages, x: Tensor) -> Tensor:
    batch, channels, frames, rows, columns = x.shape
    return run.tape.reshape(run.tape.permute(x, 0, 2, 1, 3, 4), batch * frames, channels, rows, columns)


class ImagesAsFrames(Operation):
    """Images back as the frames of the clip beside them, a view."""

    __slots__ = ()


@lowering(ImagesAsFrames)
def images_as_frames(run: Lowering, op: ImagesAsFrames, x: Tensor, like: Tensor) -> Tensor:
    batch, frames = like.shape[0], like.shape[2]
    return run.tape.permute(run.tape.view(x, batch, frames, *x.shape[1:]), 0, 2, 1, 3, 4)


class DoubledInFp32(Operation):
    """Twice the rows and columns, worked out in fp32."""

    __slots__ = ()


@lowering(DoubledInFp32)
def doubled_in_fp32(run: Lowering, op: DoubledInFp32, x: Tensor) -> Tensor:
    tape = run.tape
    wide = tape.to(x, "fp32")
    large = tape.new((*x.shape[:-2], 2 * x.shape[-2], 2 * x.shape[-1]), "fp32", op="upsample_nearest2d")
    tape.record("upsample_nearest2d", [wide], [large])
    tape.record("locals", [wide], [])
    return tape.to(large, x.dtype)


class PairsOfFrames(Operation):
    """(batch, 2 · channels, frames, …) as (batch, channels, 2 · frames, …): halves of the channels in turn."""

    __slots__ = ()


@lowering(PairsOfFrames)
def pairs_of_frames(run: Lowering, op: PairsOfFrames, x: Tensor) -> Tensor:
    batch, channels, frames, rows, columns = x.shape
    out = run.tape.new((batch, whole(channels) // 2, 2 * frames, rows, columns), x.dtype, op="stack")
    run.tape.record("cat", [x], [out])
    run.tape.record("locals", [x], [])
    return out


class PlacesSdpa(Operation):
    """Attention of one head over the places of an image, from a map of queries, keys and values, and back to a map."""

    __slots__ = ()


@lowering(PlacesSdpa)
def places_sdpa(run: Lowering, op: PlacesSdpa, maps: Tensor) -> Tensor:
    tape, (batch, wide, rows, columns) = run.tape, maps.shape
    width = whole(wide) // 3
    flat = tape.reshape(maps, batch, 1, wide, rows * columns)
    joined = tape.clone_contiguous(tape.permute(flat, 0, 1, 3, 2))
    q, k, v = tape.chunk(joined, 3)
    mixed = tape.sdpa(q, k, v)
    out = tape.reshape(tape.permute(tape.squeeze(mixed, 1), 0, 2, 1), batch, width, rows, columns)
    tape.record("locals", [joined], [])
    return out


class FrameOf(Operation):
    """One frame of a clip, a view."""

    __slots__ = ()


@lowering(FrameOf)
def frame_of(run: Lowering, op: FrameOf, x: Tensor) -> Tensor:
    return run.tape.narrow(x, 2, 1)


@record(kw_only=True, eq=False)
class FramesSoFar(Operation):
    """The frames that were decoded before the last call stand for those of all calls between: `frames` of them."""

    frames: int


@lowering(FramesSoFar)
def frames_so_far(run: Lowering, op: FramesSoFar, x: Tensor) -> Tensor:
    out = run.tape.new((*x.shape[:2], op.frames, *x.shape[3:]), x.dtype, op="cat")
    run.tape.record("cat", [x], [out])
    return out


class FramesBehind(Operation):
    """Frames one behind the other."""

    __slots__ = ()


@lowering(FramesBehind)
def frames_behind(run: Lowering, op: FramesBehind, *pieces: Tensor) -> Tensor:
    return run.tape.cat(pieces, 2)
