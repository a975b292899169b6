"""Gemma 4's and Phi-4's images as transformers 5.23 runs them: patches padded to one number, pooled."""

from __future__ import annotations

import math

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import exact_quotient
from vramwise.models.autograd.tensor import Tensor, channels_last_strides
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyRotary, Attention, AttentionStyle, sdpa_attention
from vramwise.models.operations.images import image_pixels, num_images, raw_pixels
from vramwise.models.operations.tiles import eager_masked_attention, sdpa_masked_attention
from vramwise.models.operations.towers import EmbeddedImages, siglip_embedding_by_image
from vramwise.records import record


def _slots(run: Lowering) -> int:
    images = run.execution.images
    assert images is not None
    return images.padded_to or images.patches


class PaddedPatches(Operation):
    __slots__ = ()


@lowering(PaddedPatches)
def padded_patches(run: Lowering, op: PaddedPatches) -> Tensor:
    """Scaled pixels times a matrix, plus a row for each axis, nothing at places of padding; tables for all layers.

    Masks are made where some patch is padding.
    """
    tape, images, (weight, table) = run.tape, run.execution.images, run.parameters_of(op)
    assert images is not None
    n, slots = num_images(run), _slots(run)
    pixels = tape.scale(tape.scale(raw_pixels(run, n, slots, weight.shape[1]), "add_scalar"))
    x = tape.linear(tape.to(pixels, weight.dtype), weight)
    clamped, padding = tape.new((n, slots, 2), "int64", op="clamp"), tape.new((n, slots), "bool", op="all")
    of_axes = (tape.embedding(tape.select(clamped, 2), tape.select(table, 0)) for _ in range(2))
    positions = tape.where(tape.unsqueeze(padding, 2), tape.new((), table.dtype, op="zero"), tape.add(*of_axes))
    x = tape.add(x, positions)
    run.tables["padding of patches"] = (padding,)
    run.tables["dtype of patches"] = (x,)
    if slots > images.patches:
        mask_patches(run, x)
    return x


def mask_patches(run: Lowering, x: Tensor) -> None:
    """The mask of x (inputs, patches, width) for all layers."""
    dtype = x.dtype if run.execution.attention == "eager" else "bool"
    run.tables["mask of patches"] = (run.tape.new((x.shape[0], 1, x.shape[1], x.shape[1]), dtype, op="mask"),)


class ClampByBuffers(Operation):
    __slots__ = ()


@lowering(ClampByBuffers)
def clamp_by_buffers(run: Lowering, op: ClampByBuffers, x: Tensor) -> Tensor:
    """`torch.clamp` between two buffers of one number, which it keeps beside its operand."""
    tape = run.tape
    ends = [tape.new((), run.execution.param_dtype, kind="buffer", op="buffer") for _ in range(2)]
    out = tape.like(x, requires_grad=x.requires_grad, op="clamp")
    tape.record("clamp", [x, *ends], [out], [(x, "self"), (ends[0], "min"), (ends[1], "max")])
    return out


class RotaryByAxis(AnyRotary):
    __slots__ = ()


@lowering(RotaryByAxis)
def rotary_by_axis(run: Lowering, op: RotaryByAxis, x: Tensor) -> Tensor:
    """Each half of a head turned by the positions of one axis, with tables in the dtype of the first layer's input.

    x: (images, patches, heads, d).
    """
    tape, key = run.tape, f"axes of patches/{x.shape[-1]}"
    if key not in run.tables:
        shape, dtype = (*x.shape[:2], x.shape[-1]), run.tables["dtype of patches"][0].dtype
        run.tables[key] = tuple(tape.new(shape, dtype, op=fn) for fn in ("cos", "sin"))
    pieces = zip(*(tape.chunk(y, 2) for y in (x, *run.tables[key])), strict=True)
    found = []
    for half, *tables in pieces:
        cos, sin = (tape.unsqueeze(table, 2) for table in tables)
        first, second = tape.chunk(half, 2)
        turned = tape.cat([tape.unary("neg", second), first])
        found.append(tape.add(tape.mul(half, cos), tape.mul(turned, sin)))
    return tape.cat(found)


PADDED_IMAGES = AttentionStyle("padded_images")


@PADDED_IMAGES.path("eager")
def _eager_padded_images(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    (mask,) = run.tables.get("mask of patches", (None,))
    return eager_masked_attention(run, op, q, k, v, mask)


@PADDED_IMAGES.path("sdpa")
def _sdpa_padded_images(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """With a mask where there is padding."""
    if "mask of patches" not in run.tables:
        return sdpa_attention(run, op, q, k, v)
    return sdpa_masked_attention(run, op, q, k, v, run.tables["mask of patches"][0])


@record(kw_only=True, eq=False)
class PoolValid(Operation):
    kernel: int
    standardized: bool


@lowering(PoolValid)
def pool_valid(run: Lowering, op: PoolValid, x: Tensor) -> Tensor:
    """Means of squares as a product with their weights in fp32, padding left out, times a root, standardized."""
    tape, images, kernel, (n, slots, width) = run.tape, run.execution.images, op.kernel, x.shape
    assert images is not None
    (padding,), (first,) = run.tables["padding of patches"], run.tables["dtype of patches"]
    squares = exact_quotient(slots, kernel**2)
    x = tape.masked_fill(x, tape.unsqueeze(padding, 2))
    ones = tape.to(tape.new((n, slots, squares), "int64", op="one_hot"), "fp32")
    weights = tape.transpose(tape.scale(ones), 1, 2)
    x = tape.to(tape.matmul(weights, tape.to(x, "fp32")), x.dtype)
    x = tape.scale(tape.to(x, "fp32"))
    x = _valid_rows(run, x, tape.new((n, squares), "bool", op="logical_not"))
    if op.standardized:
        buffers = (tape.new((width,), run.execution.param_dtype, kind="buffer", op="buffer") for _ in range(2))
        shift, scale = (tape.to(buffer, "fp32") for buffer in buffers)
        x = tape.mul(tape.add(x, shift), scale)
    return tape.to(x, first.dtype)


def _valid_rows(run: Lowering, x: Tensor, valid: Tensor) -> Tensor:
    """`x[valid]`: one row for each token of the prompt; keeps the mask."""
    images = run.execution.images
    assert images is not None
    rows = run.batch * (images.per_sequence * images.tokens)
    out = run.tape.new((rows, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="index")
    run.tape.record("index", [x, valid], [out], [(valid, "indices")])
    return out


# -- Phi-4 -----------------------------------------------------------------------------------------------


class SiglipEmbeddingWithPadding(EmbeddedImages):
    __slots__ = ()


@lowering(SiglipEmbeddingWithPadding)
def siglip_embedding_with_padding(run: Lowering, op: SiglipEmbeddingWithPadding) -> Tensor:
    """As `siglip_embedding_by_image`; tiles that an image does not fill have a mask."""
    images, x = run.execution.images, siglip_embedding_by_image(run, op)
    if images is not None and images.padded_to:
        mask_patches(run, x)
    return x


class PoolPairs(Operation):
    __slots__ = ()


@lowering(PoolPairs)
def pool_pairs(run: Lowering, op: PoolPairs, x: Tensor) -> Tensor:
    """`AvgPool2d` of 2 × 2 patches over a view with channels last, which it keeps; an odd side is padded first."""
    tape, (n, patches, width) = run.tape, x.shape
    assert isinstance(patches, int)
    side = math.isqrt(patches)
    grid = tape.permute(tape.view(x, n, side, side, width), 0, 3, 1, 2)
    if side % 2:
        side += 1
        padded = _channels_last(run, grid, side, "reflection_pad2d")
        tape.record("reflection_pad2d", [grid], [padded], [(grid, "self")])
        grid = padded
    pooled = _channels_last(run, grid, side // 2, "avg_pool2d")
    tape.record("avg_pool2d", [grid], [pooled], [(grid, "self")])
    return tape.view(tape.permute(pooled, 0, 2, 3, 1), n, (side // 2) ** 2, width)


def _channels_last(run: Lowering, x: Tensor, side: int, op: str) -> Tensor:
    shape = (*x.shape[:2], side, side)
    strides = channels_last_strides(shape)
    return run.tape.new(shape, x.dtype, requires_grad=x.requires_grad, strides=strides, op=op)


class Separators(Operation):
    __slots__ = ()


@lowering(Separators)
def separators(run: Lowering, op: Separators, x: Tensor) -> Tensor:
    """Tiles laid side by side without padding, learned ends of lines and one between tiles and whole image."""
    tape, images, ends = run.tape, run.execution.images, run.parameters_of(op)
    assert images is not None
    rows = run.batch * (images.per_sequence * images.tokens)
    grad = any(tensor.requires_grad for tensor in (x, *ends))
    joined = tape.new((rows, x.shape[-1]), promote(x.dtype, ends[0].dtype), requires_grad=grad, op="cat")
    tape.record("cat", [x, *ends], [joined])
    return tape.to(joined, ends[0].dtype)


class ImageRows(Operation):
    __slots__ = ()
    joins_images = True


@lowering(ImageRows)
def image_rows(run: Lowering, op: ImageRows, x: Tensor, image: Tensor) -> Tensor:
    """`index_put` at places that `nonzero` found: keeps both numbers of every place."""
    tape = run.tape
    image = tape.to(tape.cat([image], 0), x.dtype)
    places = tape.new((image.shape[0], 2), "int64", op="nonzero")
    out = tape.like(x, requires_grad=x.requires_grad or image.requires_grad, op="index_put")
    tape.record("index_put", [x, places, image], [out], [(places, "indices")])
    return out


# -- the unified models ----------------------------------------------------------------------------------


class PaddedPixels(Operation):
    __slots__ = ()


@lowering(PaddedPixels)
def padded_pixels(run: Lowering, op: PaddedPixels) -> Tensor:
    """Pixels of every patch, as they are."""
    return image_pixels(run, num_images(run), _slots(run), op.outputs[0].width)


class AddAxes(Operation):
    __slots__ = ()


@lowering(AddAxes)
def add_axes(run: Lowering, op: AddAxes, x: Tensor) -> Tensor:
    """A row for each axis, picked from one table, times nought for padding, added up."""
    tape, (table,), (n, slots, width) = run.tape, run.parameters_of(op), x.shape
    clamped, axes = tape.new((n, slots, 2), "int64", op="clamp"), tape.new((2,), "int64", op="arange")
    picked = tape.new((n, slots, 2, width), table.dtype, requires_grad=table.requires_grad, op="index")
    tape.record("index", [table, clamped, axes], [picked], [(clamped, "indices"), (axes, "indices")])
    valid = tape.new((n, slots, 2, 1), table.dtype, op="_to_copy")
    return tape.add(x, tape.reduce("sum", tape.mul(picked, valid), -2, keepdim=False))


class ValidOnly(Operation):
    __slots__ = ()


@lowering(ValidOnly)
def valid_only(run: Lowering, op: ValidOnly, x: Tensor) -> Tensor:
    """Tokens of patches that are no padding."""
    return _valid_rows(run, x, run.tape.new(x.shape[:2], "bool", op="all"))
