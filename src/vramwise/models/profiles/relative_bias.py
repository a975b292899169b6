"""T5's attention as transformers 5.23 runs it: learned relative biases that reach SDPA as a mask of floats."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class RelativeBiasPaths:
    """Attention of style `t5` and what only its layers do.

    A padding mask concerns the encoder's tokens alone: collators for sequence-to-sequence training pass none for the
    decoder, whose padding the loss ignores.
    """

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    source: Dim
    hidden_dtype: str
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]

    def relative_position_bias(self, op: Op) -> Tensor:
        """`compute_bias`: the bucket of every pair of positions looked up, seen as (1, heads, queries, keys)."""
        tape = self.tape
        (weight,) = self.parameters_of(op)
        length = self.source if op.settings["stack"] == "encoder" else self.sequence
        buckets = tape.new((length, length), "int64", op="add_")
        return tape.unsqueeze(tape.permute(tape.embedding(buckets, weight), 2, 0, 1), 0)

    def zero_position_bias(self, op: Op, x: Tensor) -> Tensor:
        """Cross-attention has no bias of its own: zeros in the queries' dtype, shared by all layers."""
        shape = (1, op.outputs[0].width, self.sequence, self.source)
        return self.tape.new(shape, self.execution.autocast or x.dtype, op="zeros")

    def to_parameter_dtype(self, op: Op, x: Tensor) -> Tensor:
        """The cast to the dtype of the next layer's weight, which undoes autocast's."""
        return self.tape.to(x, self.execution.param_dtype)

    def clamp_fp16(self, op: Op, x: Tensor) -> Tensor:
        """fp16 hidden states are clamped between two scalar tensors; other dtypes pass."""
        if x.dtype != "fp16":
            return x
        tape = self.tape
        out = tape.like(x, requires_grad=x.requires_grad, op="clamp")
        limits = [(tape.new((), "fp32", op=made), role) for made, role in (("neg", "min"), ("where", "max"))]
        tape.record("clamp", [x], [out], [(x, "self"), *limits])
        return out

    def _eager_t5(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        tape = self.tape
        k, v = self._cached_source(op, k), self._cached_source(op, v)
        scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
        if op.settings["causal"] or self.execution.padding:
            mask = tape.new((self.batch, 1, q.shape[2], k.shape[2]), self.hidden_dtype, op="mask")
            scores = tape.add(scores, mask)
        weights = tape.dropout(tape.softmax(scores), self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def _sdpa_t5(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        tape = self.tape
        k, v = self._cached_source(op, k), self._cached_source(op, v)
        mask = tape.contiguous(self._masked_bias(op, bias))
        out = tape.sdpa(
            q, k, v, mask=mask, dropout=self.attention_dropout(op), backend=self.execution.sdpa_backend
        )  # fmt: skip
        return tape.contiguous(tape.transpose(out, 1, 2))

    def _flash_t5(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        raise UnsupportedModelError('t5 has no flash attention in transformers; use attention "sdpa" or "eager"')

    def _cached_source(self, op: Op, x: Tensor) -> Tensor:
        """Keys or values of the encoder's tokens pass through a `DynamicCache` too, which copies them."""
        return self.tape.cat([x], 2) if self.execution.use_cache and op.settings["cross"] else x

    def _masked_bias(self, op: Op, bias: Tensor) -> Tensor:
        """`create_position_bias_mask`: the bias where attention is allowed, a large negative number elsewhere."""
        tape = self.tape
        shape = (1, 1, *bias.shape[2:])
        if op.settings["causal"] and bias.shape[2] != 1:
            allowed = tape.new(shape, "bool", op="ge")
        elif self.execution.padding:
            allowed = self._padding_mask(op, (self.batch, *shape[1:]))
        else:
            return bias
        return tape.where(allowed, bias, tape.new((), bias.dtype, op="scalar"))

    def _padding_mask(self, op: Op, shape: tuple[Dim, ...]) -> Tensor:
        """One mask for all layers of the encoder, and one for all cross-attention."""
        name = f"padding mask of {op.module}"
        if name not in self.tables:
            self.tables[name] = (self.tape.new(shape, "bool", op="mask"),)
        return self.tables[name][0]
