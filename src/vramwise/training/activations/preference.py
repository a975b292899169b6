"""The loss of a trainer of preferences (DPO): log-probabilities of chosen and rejected answers, and a reference's.

A batch holds the chosen answers in its first half and the rejected ones in its second. The policy's logits become
log-probabilities of the labels; then the reference makes logits of its own, without gradients, while the trainer's
frames still name the policy's. `frameworks/framework.py` `Preference` says what else a version holds meanwhile. The
reference's forward pass is not counted but for its logits.

Bytes a logit in fp32, as torch's profiler counts them on the CPU (tests/training/test_preference_loss.py):

    softmax of all   20 in forward (logits and their softmax, the reference's logits, a contiguous copy of them and
                     theirs), 4 kept, 12 in backward
    row by row       10 in forward (both logits, and half of them picked out), 4 kept, 12 in backward
    of copies        18 in forward (both logits, a copy of each, and half of one picked out), 4 kept, 12 in backward
"""

from __future__ import annotations

from vramwise.frameworks.framework import Preference
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor


def preference(tape: Tape, logits: Tensor, way: Preference, upcast: bool, has_reference: bool) -> None:
    """Log-probabilities over whole logits, in fp32 where `upcast` says so; without a reference where those of the
    reference were worked out before."""
    wide = tape.to(logits, "fp32") if upcast else logits
    shifted = tape.narrow(wide, 1, wide.shape[1])
    read = tape.clone_contiguous(shifted) if way.copies else shifted
    held = [*_log_probabilities(tape, read, way), *_cross_entropy_of_chosen(tape, read, way)]
    if way.picks and not way.frames_stay:
        _picked(tape, read)
    tape.record("locals", [wide, *held], [])
    if not has_reference:
        return _picked(tape, read) if way.frames_stay and way.picks else None
    reference = _reference_logits(tape, logits, wide.dtype)
    of_reference = tape.clone_contiguous(reference) if way.copies else reference
    _log_probabilities(tape, of_reference, way)
    if way.frames_stay:
        _picked(tape, read)
        tape.record("locals", [wide, read, reference, of_reference], [])
    elif way.names_logits:
        tape.record("locals", [wide, *held], [])


def _log_probabilities(tape: Tape, logits: Tensor, way: Preference) -> list[Tensor]:
    """The labels' log-probabilities; what was made of all logits and backward reads."""
    wants = logits.requires_grad
    loss = tape.new((), "fp32", requires_grad=wants, op="loss")
    if way.of_all:
        copy = tape.new(logits.shape, logits.dtype, op="contiguous")  # softmax makes one of what was cut
        tape.record("clone", [logits], [copy])
        kept = tape.new(logits.shape, logits.dtype, requires_grad=wants, op="log_softmax")
        tape.record("_log_softmax", [logits, copy], [kept], [(kept, "result")] if wants else [])
        labels = tape.new(logits.shape[:-1], "int64", op="labels")
        tape.record("gather", [kept, labels], [loss], [(labels, "index")] if wants else [])
        return [kept]
    if logits.dtype == "fp32":
        sums = tape.new(logits.shape[:-1], "fp32", op="logsumexp")
        saves = [(logits, "logits"), (sums, "logsumexp")] if wants else []
        tape.record("log_probabilities_by_row", [logits], [loss, sums], saves)
        return []
    kept = tape.new(logits.shape, logits.dtype, op="log_softmax")
    tape.record("log_softmax_by_row", [logits], [loss, kept], [(kept, "result")] if wants else [])
    return [kept] if wants else []


def _cross_entropy_of_chosen(tape: Tape, logits: Tensor, way: Preference) -> list[Tensor]:
    """The loss of the chosen answers alone, which is worked out whether or not it counts."""
    if not way.with_cross_entropy:
        return []
    copy, result = _half(tape, logits, "clone"), _half(tape, logits, "log_softmax")
    tape.record("clone", [logits], [copy])
    tape.record("_log_softmax", [copy], [result])
    return [result]


def _reference_logits(tape: Tape, logits: Tensor, dtype: str) -> Tensor:
    narrow = tape.new(logits.shape, logits.dtype, op="logits of the reference")
    tape.record("reference_logits", [], [narrow])
    return narrow if dtype == narrow.dtype else tape.to(narrow, dtype)


def _picked(tape: Tape, logits: Tensor) -> None:
    """The rows of one half's answers, for their mean: all of them where an answer has no prompt."""
    tape.record("index", [logits], [_half(tape, logits, "rows of answers")])


def _half(tape: Tape, logits: Tensor, op: str) -> Tensor:
    vocabulary = logits.shape[-1]
    assert isinstance(vocabulary, int)
    return tape.new((*logits.shape[:-1], -(-vocabulary // 2)), logits.dtype, op=op)
