"""Pixtral's tower as transformers 5.23 runs it: all images in one row, a mask keeps them apart."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout
from vramwise.models.operations.image_tokens import JoinedTokens
from vramwise.models.operations.images import image_pixels, num_images
from vramwise.records import record


@record(kw_only=True, eq=False)
class PixtralEmbedding(Operation):
    num_channels: int


@lowering(PixtralEmbedding)
def pixtral_embedding(run: Lowering, op: PixtralEmbedding) -> Tensor:
    """A convolution, the images' patches joined to one row by a copy, a norm; tables and mask for all layers."""
    tape, images, (weight, norm) = run.tape, run.execution.images, run.parameters_of(op)
    assert images is not None
    side = weight.shape[2]
    pixels = image_pixels(run, num_images(run), op.num_channels, images.rows * side, images.columns * side)
    patches = run.as_input(tape.patch_conv2d(pixels, weight, None))
    rows, width = num_images(run) * images.patches, weight.shape[0]
    joined = tape.new((rows, width), patches.dtype, requires_grad=patches.requires_grad, op="cat")
    tape.record("cat", [patches], [joined])
    x = tape.unsqueeze(joined, 0)
    wide = tape.to(x, "fp32")
    root = tape.unary("rsqrt", tape.scale(tape.reduce("mean", tape.unary("pow", wide)), "add_scalar"))
    x = tape.mul(norm, tape.to(tape.mul(wide, root), x.dtype))
    run.tables["mask of images"] = (tape.new((1, 1, rows, rows), x.dtype, op="mask"),)
    run.tables["dtype of patches"] = (x,)
    return x


class TurnedPatches(Operation):
    __slots__ = ()


@lowering(TurnedPatches)
def turned_patches(run: Lowering, op: TurnedPatches, *turned: Tensor) -> tuple[Tensor, ...]:
    """x·cos + rotate_half(x)·sin with tables in the dtype of the first layer's input."""
    tape, width, rows = run.tape, turned[0].shape[-1], turned[0].shape[2]
    if "positions of patches" not in run.tables:
        dtype = run.tables["dtype of patches"][0].dtype
        run.tables["positions of patches"] = tuple(tape.new((rows, width), dtype, op=fn) for fn in ("cos", "sin"))
    cos, sin = (tape.unsqueeze(table, 0) for table in run.tables["positions of patches"])
    found = []
    for x in turned:
        first, second = tape.chunk(x, 2)
        half = tape.cat([tape.unary("neg", second), first])
        found.append(tape.add(tape.mul(x, cos), tape.mul(half, sin)))
    return tuple(found)


ROWS_OF_IMAGES = AttentionStyle("rows_of_images")


@ROWS_OF_IMAGES.path("eager")
def _eager_rows_of_images(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, (mask,) = run.tape, run.tables["mask of images"]
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), mask)
    weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@ROWS_OF_IMAGES.path("sdpa")
def _sdpa_rows_of_images(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With the mask; flash attention is told the images' lengths instead."""
    tape, (mask,), backend = run.tape, run.tables["mask of images"], run.execution.sdpa_backend
    masked = None if backend == "flash" else mask
    mixed = tape.sdpa(q, k, v, mask=masked, dropout=attention_dropout(run, op.dropout), backend=backend)
    return tape.contiguous(tape.transpose(mixed, 1, 2))


class JoinUnfolded(JoinedTokens):
    __slots__ = ()


@lowering(JoinUnfolded)
def join_unfolded(run: Lowering, op: JoinUnfolded, x: Tensor) -> Tensor:
    """`F.unfold` of each image's grid, turned and joined by a copy."""
    tape = run.tape
    rows = tape.reshape(x, x.shape[-2], x.shape[-1])
    shape = (rows.shape[0] // op.tokens, op.outputs[0].width)
    joined = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="im2col")
    tape.record("im2col", [rows], [joined])
    return joined
