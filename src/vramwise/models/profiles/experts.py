"""Routers and experts as transformers 5.23 runs them (grouped products)."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution
from vramwise.models.profiles.activations import apply_activation


class ExpertPaths:
    """Mixture-of-experts operations."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    parameters_of: Callable[[Op], list[Tensor]]

    def experts(self, op: Op, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        """`grouped_mm_experts_forward`: rows sorted by expert, two grouped products, weighted and summed."""
        tape = self.tape
        gate_up, down = self.parameters_of(op)[:2]
        tokens, k = indices.shape
        rows = tokens * k
        sample_weights, expert_ids = tape.reshape(weights, -1), tape.reshape(indices, -1)
        order = tape.new((rows,), "int64", op="sort")
        picked = tape.gather_rows("index", x, tape.new((rows,), "int64", op="floor_divide"), rows)
        sample_weights = tape.gather_rows("index", sample_weights, order, rows)
        offsets = tape.new((op.settings["num_experts"],), "int32", op="cumsum")
        del expert_ids
        h = self.grouped_linear(picked, gate_up, offsets)
        gate, up = tape.chunk(h, 2)
        h = tape.mul(apply_activation(tape, op.settings["function"], gate), up)
        h = self.grouped_linear(h, down, offsets)
        weighted = tape.mul(h, tape.unsqueeze(sample_weights, -1))
        back = tape.gather_rows("index", weighted, tape.new((rows,), "int64", op="index_put_"), rows)
        total = tape.reduce("sum", tape.view(back, tokens, k, x.shape[-1]), 1, keepdim=False)
        return tape.to(total, x.dtype)

    def grouped_linear(self, x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
        x, weight = self.tape.autocast_low(x, weight)
        return self.tape.grouped_mm(x, self.tape.transpose(weight, 1, 2), offsets)
