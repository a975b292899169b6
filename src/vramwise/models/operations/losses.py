"""Losses: logits -> what backward starts from.

Those that one family has stand beside its operations.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.lowering import Lowering, Variants
from vramwise.models.operations.simple import input_tensor

LOSSES: Variants[Callable[[Lowering, Tensor], Tensor]] = Variants("the loss")
"""By the loss that a model names, or by its head."""


@LOSSES.named("causal-lm")
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


@LOSSES.named("shifted-lm")
def shifted_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`CrossEntropyLoss` over a copy of all logits but the last position's, in their dtype (Qwen2-Audio)."""
    tape = run.tape
    with tape.inside("loss"):
        kept = run.sequence - 1
        logits = tape.contiguous(tape.narrow(logits, 1, kept))
        labels = tape.contiguous(tape.narrow(input_tensor(run, "labels"), 1, kept))
        return tape.cross_entropy(tape.reshape(logits, -1, logits.shape[-1]), tape.reshape(labels, -1))


@LOSSES.named("fp32-lm")
def fp32_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`ForMaskedLMLoss`: as `lm_loss` on fp32 logits."""
    return lm_loss(run, run.tape.to(logits, "fp32"))


@LOSSES.named("masked-lm")
@LOSSES.named("seq2seq-lm")
def lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """`CrossEntropyLoss` over every position, in the logits' dtype."""
    tape = run.tape
    with tape.inside("loss"):
        rows = tape.view(logits, -1, logits.shape[-1])
        return tape.cross_entropy(rows, tape.view(input_tensor(run, "labels"), -1))
