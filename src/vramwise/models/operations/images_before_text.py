"""GIT as transformers 5.23 runs it: the tokens of an image, or of a video's frames, come before those of the text."""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.losses import LOSSES
from vramwise.models.operations.simple import input_tensor, text_length
from vramwise.records import record


@record(kw_only=True, eq=False)
class ImagesOfSequence(Operation):
    count: int


@lowering(ImagesOfSequence)
def images_of_sequence(run: Lowering, op: ImagesOfSequence, x: Tensor) -> Tensor:
    """One image as it is; frames each with a vector of their own, joined by a copy: (batch, tokens, width).

    Raises UnsupportedModelError.
    """
    tape, images, count, vectors = run.tape, run.execution.images, op.count, run.parameters_of(op)
    assert images is not None
    if images.per_sequence != count:
        raise UnsupportedModelError(f"images: exactly {count} come before a text, got {images.per_sequence}")
    if not vectors:
        return x
    for vector in vectors:
        x = tape.add_(x, vector)
    shape = (run.batch, count * x.shape[1], x.shape[2])
    joined = tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="cat")
    tape.record("cat", [x], [joined])
    return joined


class ImagesBeforeText(Operation):
    __slots__ = ()
    joins_images = True


@lowering(ImagesBeforeText)
def images_before_text(run: Lowering, op: ImagesBeforeText, x: Tensor, image: Tensor) -> Tensor:
    """Both joined; the image's tokens are repeated for as many texts as it has, which copies them."""
    return run.tape.cat([run.tape.repeat_rows(image, 1), x], 1)


@LOSSES.named("text-after-images-lm")
def text_after_images_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`ForCausalLMLoss` over a copy of the text's logits but the last token's."""
    tape, text = run.tape, text_length(run)
    kept = text if text == 1 else text - 1
    with tape.inside("loss"):
        logits = tape.to(tape.contiguous(tape.narrow(logits, 1, kept)), "fp32")
        labels = tape.contiguous(tape.narrow(input_tensor(run, "text_labels"), 1, kept))
        return tape.cross_entropy(tape.view(logits, -1, logits.shape[-1]), tape.view(labels, -1))
