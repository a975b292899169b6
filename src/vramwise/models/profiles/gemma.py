"""What only Gemma 4's and Gemma 3n's language models run in transformers 5.23."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class GemmaPaths:
    """Rotary positions before heads move, embeddings by layer, Gemma 4's router."""

    tape: Tape
    execution: Execution
    rotary_table: Callable[[str, int], tuple[Tensor, ...]]
    _normalized: Callable[..., Tensor]

    def rotary_by_row(self, op: Op, x: Tensor) -> Tensor:
        """x·cos + rotate_half(x)·sin on (batch, sequence, heads, d)."""
        tape, half = self.tape, x.shape[-1] // 2
        cos, sin = (tape.unsqueeze(table, 2) for table in self.rotary_table(op.settings["table"], op.inputs[0].width))
        first, second = tape.narrow(x, -1, half), tape.narrow(x, -1, half)
        turned = tape.cat([tape.unary("neg", second), first])
        return tape.add(tape.mul(x, cos), tape.mul(turned, sin))

    def layer_slice(self, op: Op, x: Tensor) -> Tensor:
        """The layer's own part of (batch, sequence, layers, width): a view."""
        return self.tape.select(x, 2)

    def among_tokens(self, op: Op, others: Tensor, x: Tensor) -> Tensor:
        """Rows of `others` at the places that a mask over tokens names, rows of `x` at all other places."""
        places = self.tape.new((*x.shape[:-1], 1), "bool", op="ge")
        return self.tape.where(places, others, x)

    def buffer(self, op: Op) -> Tensor:
        """A scalar that a module keeps."""
        return self.tape.new((), self.execution.param_dtype, kind="buffer", op="buffer")

    def scale_by_buffer_(self, op: Op, x: Tensor) -> Tensor:
        """In-place product with a buffer of one element, which backward reads."""
        return self.tape.mul_(x, self.tape.new((1,), self.execution.param_dtype, kind="buffer", op="buffer"))

    def _route_gemma4(self, op: Op, x: Tensor, weight: Tensor, scale: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Normed and scaled rows, fp32 softmax over all experts, the best few times a factor of each expert's."""
        tape = self.tape
        h = tape.to(x, "fp32")
        variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
        h = tape.to(tape.mul(h, tape.unary("pow", variance)), x.dtype)
        logits = tape.linear(tape.scale(tape.mul(h, scale)), weight)
        shares, indices = tape.topk(tape.softmax(logits, "fp32"), op.settings["experts_per_token"])
        own = tape.reshape(tape.index_rows(factors, tape.reshape(indices, -1)), *indices.shape)
        return tape.mul(self._normalized(op, shares), own), indices
