"""Results of towers on their way into the prompt, as transformers 5.23 joins them and puts them in their places."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class JoinedTokens(Operation):
    """So many neighbouring tokens side by side in one."""

    tokens: int


class WithoutFirst(Operation):
    __slots__ = ()


@lowering(WithoutFirst)
def without_first(run: Lowering, op: WithoutFirst, x: Tensor) -> Tensor:
    """Without the class token: a view."""
    return run.tape.narrow(x, 1, x.shape[1] - 1)


class JoinFeatures(Operation):
    __slots__ = ()


@lowering(JoinFeatures)
def join_features(run: Lowering, op: JoinFeatures, *results: Tensor) -> Tensor:
    """Results of several layers side by side."""
    return run.tape.cat(results)


class JoinFeaturesOfOne(JoinedTokens):
    __slots__ = ()


@lowering(JoinFeaturesOfOne)
def join_features_of_one(run: Lowering, op: JoinFeaturesOfOne, x: Tensor) -> Tensor:
    """Mistral 3's norm has the width of one layer's result: several side by side do not run.

    Raises UnsupportedModelError.
    """
    if op.tokens != 1:
        raise UnsupportedModelError("images: results of several layers of the tower side by side are not described")
    return x


class JoinRows(JoinedTokens):
    __slots__ = ()


@lowering(JoinRows)
def join_rows(run: Lowering, op: JoinRows, x: Tensor) -> Tensor:
    """Neighbours lie behind one another already."""
    return run.tape.view(x, x.shape[0] // op.tokens, op.outputs[0].width)


class JoinSquares(JoinedTokens):
    __slots__ = ()


@lowering(JoinSquares)
def join_squares(run: Lowering, op: JoinSquares, x: Tensor) -> Tensor:
    """Squares of neighbours side by side: columns joined, axes swapped by a copy, rows joined, and back."""
    tape, side = run.tape, math.isqrt(op.tokens)
    n, patches, width = x.shape
    assert isinstance(patches, int)
    rows = math.isqrt(patches)
    x = tape.view(tape.reshape(x, n, rows, rows, width), n, rows, rows // side, width * side)
    x = tape.contiguous(tape.permute(x, 0, 2, 1, 3))
    x = tape.view(x, n, rows // side, rows // side, width * side**2)
    x = tape.contiguous(tape.permute(x, 0, 2, 1, 3))
    return tape.reshape(x, n, (rows // side) ** 2, width * side**2)


class JoinGrid(JoinedTokens):
    __slots__ = ()


@lowering(JoinGrid)
def join_grid(run: Lowering, op: JoinGrid, x: Tensor) -> Tensor:
    """As `join_squares`, but for the last copy: rows and columns stay two axes, seen in their own order."""
    tape, side = run.tape, math.isqrt(op.tokens)
    n, patches, width = x.shape
    assert isinstance(patches, int)
    rows = math.isqrt(patches)
    x = tape.reshape(tape.reshape(x, n, rows, rows, width), n, rows, rows // side, width * side)
    x = tape.permute(x, 0, 2, 1, 3)
    x = tape.reshape(x, n, rows // side, rows // side, width * side**2)
    return tape.permute(x, 0, 2, 1, 3)


@record(kw_only=True, eq=False)
class AveragePool(Operation):
    rows: int
    kernel: int


@lowering(AveragePool)
def average_pool(run: Lowering, op: AveragePool, x: Tensor) -> Tensor:
    """`AvgPool2d` over a copy with patches on two axes, which it keeps; its result seen as tokens (Gemma 3)."""
    tape, rows, (n, _, width) = run.tape, op.rows, x.shape
    grid = tape.contiguous(tape.reshape(tape.transpose(x, 1, 2), n, width, rows, rows))
    side = rows // op.kernel
    pooled = tape.new((n, width, side, side), x.dtype, requires_grad=x.requires_grad, op="avg_pool2d")
    tape.record("avg_pool2d", [grid], [pooled], [(grid, "self")])
    return tape.transpose(tape.view(pooled, n, width, side * side), 1, 2)


class Project(Operation):
    __slots__ = ()


@lowering(Project)
def project(run: Lowering, op: Project, x: Tensor) -> Tensor:
    """`torch.matmul` with a plain parameter."""
    (weight,) = run.parameters_of(op)
    x, weight = run.tape.autocast_low(x, weight)
    rows = run.tape.reshape(x, -1, x.shape[-1])
    return run.tape.view(run.tape.mm("mm", rows, weight), *x.shape[:-1], weight.shape[-1])


class Newlines(Operation):
    __slots__ = ()


@lowering(Newlines)
def newlines(run: Lowering, op: Newlines, x: Tensor) -> Tensor:
    """Tiles laid side by side, without padding and with a learned end of each line: copies that keep nothing."""
    tape, images, (newline,) = run.tape, run.execution.images, run.parameters_of(op)
    assert images is not None
    shape = (run.batch * (images.per_sequence * images.tokens), x.shape[-1])
    joined = tape.new(shape, x.dtype, requires_grad=x.requires_grad or newline.requires_grad, op="cat")
    tape.record("cat", [x, newline], [joined])
    return joined


@record(kw_only=True, eq=False)
class ImageTokens(Operation):
    joins_images = True

    see_each_other: Literal["", "windows", "all"]
    listed: bool


@lowering(ImageTokens)
def image_tokens(run: Lowering, op: ImageTokens, x: Tensor, image: Tensor) -> Tensor:
    """`masked_scatter`: keeps a mask of one byte a token."""
    tape = run.tape
    run.images_see_each_other = op.see_each_other
    image = tape.to(tape.cat([image], 0) if op.listed else image, x.dtype)
    mask = tape.new((run.batch, run.sequence, 1), "bool", op="eq")
    run.tables["tokens of images"] = (mask,)
    out = tape.like(x, requires_grad=x.requires_grad or image.requires_grad, op="masked_scatter")
    tape.record("masked_scatter", [x, image], [out], [(mask, "mask")])
    return out


class AddToImageTokens(Operation):
    __slots__ = ()


@lowering(AddToImageTokens)
def add_to_image_tokens(run: Lowering, op: AddToImageTokens, x: Tensor, image: Tensor) -> Tensor:
    """`x[mask] = x[mask] + image` on a copy of x: keeps the mask, which the scatter kept already."""
    tape, (mask,) = run.tape, run.tables["tokens of images"]
    image = tape.to(tape.cat([image], 0), x.dtype)
    out = tape.clone_contiguous(x)
    picked = tape.new(image.shape, x.dtype, requires_grad=x.requires_grad, op="index")
    tape.record("index", [out, mask], [picked], [(mask, "indices")])
    added = tape.add(picked, image)
    result = replace(out, requires_grad=added.requires_grad)
    tape.record("index_put_", [out, mask, added], [result], [(mask, "indices")])
    return result
