"""Losses: logits -> what backward starts from."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.lowering import Lowering
from vramwise.models.operations.codes import codes_lm_loss
from vramwise.models.operations.images import classification_loss, contrastive_loss
from vramwise.models.operations.images_before_text import text_after_images_loss
from vramwise.models.operations.inputs import input_tensor
from vramwise.models.operations.ngram_streams import ngram_lm_loss, smoothed_ngram_lm_loss
from vramwise.models.operations.siglip import pairwise_sigmoid_loss


def causal_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`ForCausalLMLoss`: fp32 logits, labels padded and shifted, cross entropy."""
    tape = run.tape
    with tape.inside("loss"):
        logits = tape.to(logits, "fp32")
        labels = input_tensor(run, "input_ids")
        padded = tape.pad(labels, -1, 1)
        shifted = tape.contiguous(tape.narrow(padded, -1, run.sequence))
        rows = tape.view(logits, -1, logits.shape[-1])
        return tape.cross_entropy(rows, tape.view(shifted, -1))


def shifted_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`CrossEntropyLoss` over a copy of all logits but the last position's, in their dtype (Qwen2-Audio)."""
    tape = run.tape
    with tape.inside("loss"):
        kept = run.sequence - 1
        logits = tape.contiguous(tape.narrow(logits, 1, kept))
        labels = tape.contiguous(tape.narrow(input_tensor(run, "labels"), 1, kept))
        return tape.cross_entropy(tape.reshape(logits, -1, logits.shape[-1]), tape.reshape(labels, -1))


def fp32_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`ForMaskedLMLoss`: as `lm_loss` on fp32 logits."""
    return lm_loss(run, run.tape.to(logits, "fp32"))


def lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`CrossEntropyLoss` over every position, in the logits' dtype."""
    tape = run.tape
    with tape.inside("loss"):
        rows = tape.view(logits, -1, logits.shape[-1])
        return tape.cross_entropy(rows, tape.view(input_tensor(run, "labels"), -1))


LOSSES: dict[str, Callable[[Lowering, Tensor], Tensor]] = {
    "causal-lm": causal_lm_loss,
    "masked-lm": lm_loss,
    "seq2seq-lm": lm_loss,
    "fp32-lm": fp32_lm_loss,
    "shifted-lm": shifted_lm_loss,
    "image-classification": classification_loss,
    "text-after-images-lm": text_after_images_loss,
    "codes-lm": codes_lm_loss,
    "ngram-lm": ngram_lm_loss,
    "smoothed-ngram-lm": smoothed_ngram_lm_loss,
    "contrastive": contrastive_loss,
    "pairwise-sigmoid": pairwise_sigmoid_loss,
}
"""By the loss that a model names, or by its head."""
