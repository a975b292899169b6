"""ViT and CLIP as transformers 5.23 runs them: patches, class tokens, comparison of two towers, their losses."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.losses import LOSSES
from vramwise.records import record


@record(kw_only=True, eq=False)
class PixelPatches(Operation):
    image_size: int
    num_channels: int


@lowering(PixelPatches)
def pixel_patches(run: Lowering, op: PixelPatches) -> Tensor:
    """Pixels convolved by patches that do not overlap: (batch, patches, width), a view."""
    tape = run.tape
    weight, *bias = run.parameters_of(op)
    side = op.image_size
    pixels = image_pixels(run, num_images(run), op.num_channels, side, side)
    patches = run.as_input(tape.patch_conv2d(pixels, weight, bias[0] if bias else None))
    return tape.transpose(tape.reshape(patches, *patches.shape[:2], -1), 1, 2)


def num_images(run: Lowering) -> Dim:
    """Inputs of the tower: one to a row, or what the batch of texts holds."""
    images = run.execution.images
    return run.batch if images is None else run.batch * (images.per_sequence * images.tiles)


def image_pixels(run: Lowering, *shape: Dim) -> Tensor:
    """Pixels of the batch, cast to the parameters' dtype."""
    return run.tape.to(raw_pixels(run, *shape), run.execution.param_dtype)


def raw_pixels(run: Lowering, *shape: Dim) -> Tensor:
    """Pixels as they come with the batch."""
    images = run.execution.images
    dtype = (images.dtype if images is not None else "") or run.execution.param_dtype
    return run.tape.new(shape, dtype, kind="input", op="pixel_values")


class ClassTokenFirst(Operation):
    __slots__ = ()


@lowering(ClassTokenFirst)
def class_token_first(run: Lowering, op: ClassTokenFirst, x: Tensor) -> Tensor:
    """A learned token joined before the patches."""
    (token,) = run.parameters_of(op)
    token = run.tape.view(token, 1, 1, x.shape[-1])
    return run.tape.cat([run.tape.expand(token, x.shape[0], 1, x.shape[-1]), x], 1)


class ClassAndMean(Operation):
    __slots__ = ()


@lowering(ClassAndMean)
def class_and_mean(run: Lowering, op: ClassAndMean, x: Tensor) -> Tensor:
    """The first token beside the mean of all others."""
    tape = run.tape
    rest = tape.narrow(x, 1, x.shape[1] - 1)
    return tape.cat([tape.select(x, 1), tape.reduce("mean", rest, 1, keepdim=False)])


class BufferedPositions(Operation):
    __slots__ = ()


@lowering(BufferedPositions)
def buffered_positions(run: Lowering, op: BufferedPositions) -> Tensor:
    """Positions looked up by a buffer of all of them."""
    (table,) = run.parameters_of(op)
    return run.tape.embedding(run.tape.new((1, table.shape[0]), "int64", kind="buffer", op="arange"), table)


class TokenOfEachRow(Operation):
    __slots__ = ()


@lowering(TokenOfEachRow)
def token_of_each_row(run: Lowering, op: TokenOfEachRow, x: Tensor) -> Tensor:
    """`x[arange(batch), indices]`: keeps both vectors of indices."""
    tape = run.tape
    out = tape.new((x.shape[0], x.shape[2]), x.dtype, requires_grad=x.requires_grad, op="index")
    indices = [tape.new((run.batch,), "int64", op=made) for made in ("arange", "argmax")]
    tape.record("index", [x, *indices], [out], [(index, "indices") for index in indices])
    return out


class UnitLength(Operation):
    __slots__ = ()


@lowering(UnitLength)
def unit_length(run: Lowering, op: UnitLength, x: Tensor) -> Tensor:
    """`_get_vector_norm`: x over the root, a power, of its sum of squares."""
    tape = run.tape
    return tape.div(x, tape.unary("pow", tape.reduce("sum", tape.unary("pow", x))))


class Similarities(Operation):
    __slots__ = ()


@lowering(Similarities)
def similarities(run: Lowering, op: Similarities, text: Tensor, image: Tensor) -> Tensor:
    """Every text against every image of the batch, times the exponential of a learned scale."""
    tape, (scale,) = run.tape, run.parameters_of(op)
    rows, columns = tape.autocast_low(text, tape.transpose(image, 0, 1))
    return tape.mul(tape.mm("mm", rows, columns), tape.unary("exp", scale))


# -- losses --------------------------------------------------------------------------------------------


@LOSSES.named("image-classification")
def classification_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`ForSequenceClassificationLoss` with one label to an image, in the logits' dtype."""
    with run.tape.inside("loss"):
        return run.tape.cross_entropy(logits, _row_labels(run, "labels"))


@LOSSES.named("contrastive")
def contrastive_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`image_text_contrastive_loss`: cross entropy over rows and over columns."""
    tape = run.tape
    with tape.inside("loss"):
        losses = [tape.cross_entropy(x, _row_labels(run, "arange")) for x in (logits, tape.transpose(logits, 0, 1))]
        return tape.scale(tape.add(*losses))


def _row_labels(run: Lowering, made: str) -> Tensor:
    return run.tape.new((run.batch,), "int64", op=made)
