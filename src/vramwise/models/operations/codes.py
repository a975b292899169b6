"""Several codes a step as transformers 5.23 runs them: MusicGen's tables, heads and loss."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.losses import LOSSES
from vramwise.records import record


class CodesEmbedding(Operation):
    __slots__ = ()


@lowering(CodesEmbedding)
def codes_embedding(run: Lowering, op: CodesEmbedding, *conditions: Tensor) -> Tensor:
    """Each codebook's rows, views of one tensor of codes, summed, behind conditions; positions from a buffer."""
    tape, tables = run.tape, run.parameters_of(op)
    codes = tape.new((run.batch, len(tables), run.sequence), "int64", op="decoder_input_ids")
    found = None
    for table in tables:
        rows = tape.embedding(tape.select(codes, 1), table)
        found = tape.scale(rows, "add_scalar") if found is None else tape.add(found, rows)
    assert found is not None
    found = tape.cat([*conditions, found], 1) if conditions else found
    positions = tape.new(found.shape[1:], run.execution.param_dtype, op="index_select")
    return tape.add(found, positions)


class NoMelody(Operation):
    __slots__ = ()


@lowering(NoMelody)
def no_melody(run: Lowering, op: NoMelody) -> Tensor:
    """One frame of pitches, all silent, in the parameters' dtype."""
    return run.tape.new((run.batch, 1, op.outputs[0].width), run.execution.param_dtype, op="zeros")


@record(kw_only=True, eq=False)
class MelodyBeforeText(Operation):
    frames: int


@lowering(MelodyBeforeText)
def melody_before_text(run: Lowering, op: MelodyBeforeText, melody: Tensor, text: Tensor) -> Tensor:
    """The frame repeated for as many as a melody has, joined with the text's hidden states."""
    tape, shape = run.tape, (run.batch, op.frames, melody.shape[-1])
    if op.frames > 1:
        repeated = tape.new(shape, melody.dtype, requires_grad=melody.requires_grad, op="repeat")
        tape.record("repeat", [melody], [repeated])
        melody = repeated
    return tape.cat([melody, text], 1)


class CodeHeads(Operation):
    __slots__ = ()


@lowering(CodeHeads)
def code_heads(run: Lowering, op: CodeHeads, x: Tensor) -> Tensor:
    """A product for each codebook, stacked by a copy: (batch, codebooks, steps, codes)."""
    return run.tape.stack([run.tape.linear(x, weight) for weight in run.parameters_of(op)], 1)


@LOSSES.named("codes-lm")
def codes_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """The mean of a cross entropy for each codebook over its own copy of the codes' logits and labels."""
    tape, (_, codes, _, width) = run.tape, logits.shape
    assert isinstance(codes, int)
    with tape.inside("loss"):
        labels = tape.new((run.batch, run.sequence, codes), "int64", op="masked_fill")
        losses = []
        for _ in range(codes):
            last = tape.narrow(tape.select(logits, 1), 1, run.sequence)
            rows = tape.view(tape.contiguous(last), -1, width)
            losses.append(tape.cross_entropy(rows, tape.view(tape.contiguous(tape.select(labels, 2)), -1)))
        total = losses[0]
        for loss in losses[1:]:
            total = tape.add(total, loss)
        return tape.scale(total)
