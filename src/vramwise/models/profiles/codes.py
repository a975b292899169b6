"""Several codes a step as transformers 5.23 runs them: MusicGen's tables, heads and loss."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class CodePaths:
    """A step holds one code of each codebook: embeddings are summed, heads stand side by side."""

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    parameters_of: Callable[[Op], list[Tensor]]

    def codes_embedding(self, op: Op, *conditions: Tensor) -> Tensor:
        """Each codebook's rows, views of one tensor of codes, summed, behind conditions; positions from a buffer."""
        tape, tables = self.tape, self.parameters_of(op)
        codes = tape.new((self.batch, len(tables), self.sequence), "int64", op="decoder_input_ids")
        found = None
        for table in tables:
            rows = tape.embedding(tape.select(codes, 1), table)
            found = tape.scale(rows, "add_scalar") if found is None else tape.add(found, rows)
        assert found is not None
        found = tape.cat([*conditions, found], 1) if conditions else found
        positions = tape.new(found.shape[1:], self.execution.param_dtype, op="index_select")
        return tape.add(found, positions)

    def no_melody(self, op: Op) -> Tensor:
        """One frame of pitches, all silent, in the parameters' dtype."""
        return self.tape.new((self.batch, 1, op.outputs[0].width), self.execution.param_dtype, op="zeros")

    def melody_before_text(self, op: Op, melody: Tensor, text: Tensor) -> Tensor:
        """The frame repeated for as many as a melody has, joined with the text's hidden states."""
        tape, shape = self.tape, (self.batch, op.settings["frames"], melody.shape[-1])
        if op.settings["frames"] > 1:
            repeated = tape.new(shape, melody.dtype, requires_grad=melody.requires_grad, op="repeat")
            tape.record("repeat", [melody], [repeated])
            melody = repeated
        return tape.cat([melody, text], 1)

    def code_heads(self, op: Op, x: Tensor) -> Tensor:
        """A product for each codebook, stacked by a copy: (batch, codebooks, steps, codes)."""
        return self.tape.stack([self.tape.linear(x, weight) for weight in self.parameters_of(op)], 1)

    def codes_lm_loss(self, logits: Tensor) -> Tensor:
        """The mean of a cross entropy for each codebook over its own copy of the codes' logits and labels."""
        tape, (_, codes, _, width) = self.tape, logits.shape
        assert isinstance(codes, int)
        with tape.inside("loss"):
            labels = tape.new((self.batch, self.sequence, codes), "int64", op="masked_fill")
            losses = []
            for _ in range(codes):
                last = tape.narrow(tape.select(logits, 1), 1, self.sequence)
                rows = tape.view(tape.contiguous(last), -1, width)
                losses.append(tape.cross_entropy(rows, tape.view(tape.contiguous(tape.select(labels, 2)), -1)))
            total = losses[0]
            for loss in losses[1:]:
                total = tape.add(total, loss)
            return tape.scale(total)
