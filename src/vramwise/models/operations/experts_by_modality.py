"""ERNIE 4.5 VL as transformers 5.23 runs it: tokens of text and of images pass experts of their own."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.experts import EXPERTS, ExpertMlps, experts
from vramwise.models.operations.images import image_pixels
from vramwise.models.operations.routers import ROUTES, Router
from vramwise.models.operations.towers import tower_rows
from vramwise.records import record


@record(kw_only=True, eq=False)
class RowsOfText(Operation):
    marks: int


@lowering(RowsOfText)
def rows_of_text(run: Lowering, op: RowsOfText, x: Tensor) -> Tensor:
    """`x[~mask]` seen as rows."""
    if run.execution.images is None:
        return x
    kinds = run.tape.new((run.batch, run.sequence), "bool", op="_to_copy")
    run.tables["kinds of tokens"] = (kinds,)
    mask = run.tape.new(x.shape, "bool", op="bitwise_not")
    return _picked(run, x, mask, run.batch * run.sequence - _image_rows(run, op))


@record(kw_only=True, eq=False)
class RowsOfImages(Operation):
    marks: int


@lowering(RowsOfImages)
def rows_of_images(run: Lowering, op: RowsOfImages, x: Tensor) -> Tensor:
    """`x[mask]` seen as rows."""
    if run.execution.images is None:
        return x
    return _picked(run, x, run.tables["kinds of tokens"][0], _image_rows(run, op))


def _image_rows(run: Lowering, op: RowsOfImages | RowsOfText) -> Dim:
    images = run.execution.images
    assert images is not None
    marks: int = op.marks
    return run.batch * (images.per_sequence * (images.tokens + marks))


def _picked(run: Lowering, x: Tensor, mask: Tensor, rows: Dim) -> Tensor:
    out = run.tape.new((rows, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="index")
    run.tape.record("index", [x, mask], [out], [(mask, "indices")])
    return out


class RowsTogether(Operation):
    __slots__ = ()


@lowering(RowsTogether)
def rows_together(run: Lowering, op: RowsTogether, x: Tensor, text: Tensor, images: Tensor) -> Tensor:
    """Both kinds of rows put into zeros of the stream's shape."""
    if run.execution.images is None:
        return text
    tape, (kinds,) = run.tape, run.tables["kinds of tokens"]
    out = tape.like(x, requires_grad=False, op="zeros_like")
    for rows, mask in ((text, tape.new(x.shape, "bool", op="bitwise_not")), (images, kinds)):
        put = replace(out, requires_grad=out.requires_grad or rows.requires_grad)
        tape.record("index_put_", [out, mask, rows], [put], [(mask, "indices")])
        out = put
    return out


@ROUTES.named("of_images")
def _route_of_images(run: Lowering, op: Router, x: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    if run.execution.images is None:
        return x, x
    return ROUTES[op.routing](run, op, x, *weights)


@EXPERTS.named("of_images")
def _experts_of_images(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
    if run.execution.images is None:
        return x
    return experts(run, replace(op, experts_per_token=op.chosen, style=""), x, weights, *indices)


# -- the tower -----------------------------------------------------------------------------------------


class RowsOfPixels(Operation):
    __slots__ = ()


@lowering(RowsOfPixels)
def rows_of_pixels(run: Lowering, op: RowsOfPixels) -> Tensor:
    """Flat patches of all images times a matrix."""
    (weight,) = run.parameters_of(op)
    return run.tape.linear(image_pixels(run, tower_rows(run), weight.shape[1]), weight)


class FramesTwice(Operation):
    __slots__ = ()


@lowering(FramesTwice)
def frames_twice(run: Lowering, op: FramesTwice, x: Tensor) -> Tensor:
    """Rows of even and of odd frames, which are the same ones for an image, picked and joined."""
    tape, picked = run.tape, []
    for _ in range(2):
        index = tape.new((x.shape[0],), "int64", op="cat")
        out = tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="index_select")
        tape.record("index_select", [x, index], [out], [(index, "index")])
        picked.append(out)
    return tape.cat(picked)
