"""Qwen 4's residual streams and n-gram embeddings as transformers 5.23 runs them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class ResidualStreamPaths:
    """Streams side by side in the last axis, (batch, sequence, streams · width)."""

    tape: Tape
    batch: Dim
    sequence: Dim
    parameters_of: Callable[[Op], list[Tensor]]

    def repeat_streams(self, op: Op, x: Tensor) -> Tensor:
        shape = (*x.shape[:-1], op.outputs[0].width)
        out = self.tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="repeat")
        self.tape.record("repeat", [x], [out])
        return out

    def stream_norm(self, op: Op, x: Tensor) -> Tensor:
        """Root-mean-square norm of every stream, one weight for the whole, in fp32."""
        tape, (weight,) = self.tape, self.parameters_of(op)
        rows = self._apart(op, tape.to(x, "fp32"))
        variance = tape.scale(tape.reduce("mean", tape.unary("pow", rows)), "add_scalar")
        normed = tape.reshape(tape.mul(rows, tape.unary("rsqrt", variance)), *x.shape)
        return tape.to(tape.mul(normed, tape.scale(tape.to(weight, "fp32"), "add_scalar")), x.dtype)

    def _apart(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.reshape(x, *x.shape[:-1], op.settings["streams"], -1)

    def mixed_streams(self, op: Op, weights: Tensor, x: Tensor) -> Tensor:
        """The mean of all streams, each element with a weight."""
        product = self.tape.mul(self._apart(op, weights), self._apart(op, x))
        return self.tape.reduce("mean", product, -2, keepdim=False)

    def injected(self, op: Op, x: Tensor, h: Tensor, weights: Tensor) -> Tensor:
        """A layer's result added to every stream with a weight of its own."""
        tape = self.tape
        spread = tape.mul(tape.unsqueeze(h, -2), tape.unsqueeze(weights, -1))
        return tape.add(x, tape.reshape(spread, *x.shape))

    def hashed_ngrams(self, op: Op) -> Tensor:
        """Rows for the hashes of each token's n-grams; the ids of the tokens before a sequence are cut off."""
        tape, (weight,), heads = self.tape, self.parameters_of(op), op.settings["heads"]
        ids = tape.new((self.batch, self.sequence + op.settings["context"], heads), "int64", op="cat")
        rows = tape.embedding(tape.narrow(ids, 1, self.sequence), weight)
        return tape.reshape(rows, *rows.shape[:2], -1)

    def stream_gate(self, op: Op, key: Tensor, query: Tensor, value: Tensor) -> Tensor:
        """σ(±√|key · query|) for each stream, times the value."""
        tape = self.tape
        product = tape.mul(self._apart(op, key), self._apart(op, query))
        gate = tape.scale(tape.reduce("sum", product))
        root = tape.unary("sqrt", tape.unary("clamp", tape.unary("abs", gate)))
        sign = tape.like(gate, requires_grad=gate.requires_grad, op="sign")
        tape.record("sign", [gate], [sign])
        gate = tape.unary("sigmoid", tape.mul(root, sign))
        return tape.reshape(tape.mul(gate, tape.unsqueeze(value, -2)), *query.shape)

    def dilated_conv1d(self, op: Op, x: Tensor) -> Tensor:
        """Each channel over positions that lie `dilation` apart, activated."""
        tape, (weight,), dilation = self.tape, self.parameters_of(op), op.settings["dilation"]
        x = tape.pad(tape.transpose(x, 1, 2), -1, dilation * (weight.shape[-1] - 1))
        return tape.transpose(tape.unary("silu", tape.depthwise_conv1d(x, weight, None, 0, dilation)), 1, 2)

    def block_index(self, op: Op, x: Tensor) -> tuple[()]:
        """Only indices of blocks come of it, so nothing of it outlives the forward pass."""
        self.tape.linear(self.tape.detached(x), self.tape.detached(self.parameters_of(op)[0]))
        return ()
