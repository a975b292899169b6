"""XLNet's attention as transformers 5.23 runs it: contents and relative positions compared by `torch.einsum`."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class XLNetPaths:
    """Tensors are (sequence, batch, width). Indices: i queries, j keys or distances, b batch, n heads, d, h widths.

    Without segment ids, second stream and memories, which training on text alone does not pass.
    """

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    tables: dict[str, tuple[Tensor, ...]]
    input_tensor: Callable[[str], Tensor]
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]

    def sequence_first_embedding(self, op: Op) -> Tensor:
        """Ids turned to (sequence, batch), a copy, and looked up."""
        tape = self.tape
        ids = tape.contiguous(tape.transpose(self.input_tensor("input_ids"), 0, 1))
        return tape.embedding(ids, *self.parameters_of(op))

    def batch_first(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.contiguous(self.tape.permute(x, 1, 0, 2))

    def xlnet_attention(self, op: Op, x: Tensor) -> Tensor:
        """`XLNetRelativeAttention` as far as the output projection.

        The weights are no operands of linear layers, so that autocast casts them, and the input for each, anew.
        """
        tape, p = self.tape, op.settings["dropout"] if self.execution.dropout else 0.0
        query, key, value, out, relative, distance_bias, _, content_bias, _ = self.parameters_of(op)
        q, k, v = (tape.einsum("ibh,hnd->ibnd", x, weight) for weight in (query, key, value))
        distances = tape.to(self._distances(x.shape[-1], p), relative.dtype)
        r = tape.einsum("ibh,hnd->ibnd", distances, relative)
        content = tape.einsum("ibnd,jbnd->bnij", tape.add(q, content_bias), k)
        shifted = self._shifted(tape.einsum("ibnd,jbnd->bnij", tape.add(q, distance_bias), r))
        scores = tape.scale(tape.scale(tape.add(content, shifted), "add_scalar"))
        weights = tape.dropout(tape.softmax(scores), p)
        return tape.einsum("ibnd,hnd->ibh", tape.einsum("bnij,jbnd->ibnd", weights, v), out)

    def _distances(self, width: Dim, p: float) -> Tensor:
        """Sines and cosines of every distance, seen for every row of the batch, with a dropout; made once."""
        if "distances" not in self.tables:
            tape = self.tape
            table = tape.new((2 * self.sequence, 1, width), "fp32", op="cat")
            wide = tape.expand(table, 2 * self.sequence, self.batch, width)
            self.tables["distances"] = (tape.dropout(wide, p),)
        return self.tables["distances"][0]

    def _shifted(self, scores: Tensor) -> Tensor:
        """`rel_shift_bnij`: each query's distances moved to its keys; `index_select` keeps the keys' numbers."""
        tape = self.tape
        b, n, i, j = scores.shape
        x = tape.narrow(tape.reshape(scores, b, n, j, i), 2, j - 1)
        x = tape.reshape(x, b, n, i, j - 1)
        keys = tape.new((i,), "int64", op="arange")
        picked = tape.new((b, n, i, i), x.dtype, requires_grad=x.requires_grad, op="index_select")
        tape.record("index_select", [x, keys], [picked], [(keys, "index")])
        return picked
