"""Compressed convolutional attention (arXiv 2510.04476) as transformers 5.23 runs ZAYA's."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class CompressedConvolutionPaths:
    """Queries and keys mixed by two convolutions, values of two tokens, a residual stream in fp32."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    parameters_of: Callable[[Op], list[Tensor]]

    def to_parameter_dtype(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.to(x, self.execution.param_dtype)

    def shifted_and_scaled(self, op: Op, x: Tensor) -> Tensor:
        """(x + bias) · scale."""
        bias, scale = self.parameters_of(op)
        return self.tape.mul(self.tape.add(x, bias), scale)

    def scaled_by_weight(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.mul(x, *self.parameters_of(op))

    def copied(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.clone_contiguous(x)

    def convolved_heads(self, op: Op, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Both through a convolution by channel and one by head, plus means of both by group of heads."""
        tape = self.tape
        first, first_bias, second, second_bias = self.parameters_of(op)
        d, groups = op.settings["head_dim"], op.settings["num_key_value_heads"]
        joint = tape.transpose(tape.cat([q, k]), 1, 2)
        rows, times = q.shape[:2], op.settings["num_heads"] // groups
        residual = tape.transpose(tape.view(k, *rows, -1, d), 1, 2)
        residual = tape.transpose(tape.repeat_interleave_heads(residual, times), 1, 2)
        residual = tape.scale(tape.add(tape.view(q, *rows, -1, d), residual))
        key_residual = tape.reduce("mean", tape.view(residual, *rows, -1, times, d), -2, keepdim=False)
        joint = tape.pad(joint, -1, first.shape[-1] + second.shape[-1] - 2)
        joint = tape.depthwise_conv1d(tape.depthwise_conv1d(joint, first, first_bias, 0), second, second_bias, 0)
        query, key = tape.split(tape.transpose(joint, 1, 2), [q.shape[-1], k.shape[-1]])
        query, key = (tape.view(x, *rows, -1, d) for x in (query, key))
        return tape.add(query, residual), tape.add(key, key_residual)

    def delayed_by_one(self, op: Op, x: Tensor, projected: Tensor) -> Tensor:
        """Each token's projection of the token before; before the first, that of zeros."""
        tape = self.tape
        zeros = tape.new((x.shape[0], 1, x.shape[-1]), x.dtype, op="zeros")
        return tape.cat([tape.linear(zeros, *self.parameters_of(op)), tape.narrow(projected, 1, self.sequence - 1)], 1)

    def joined_halves(self, op: Op, a: Tensor, b: Tensor) -> Tensor:
        return self.tape.cat([a, b])

    def heads_of_length(self, op: Op, x: Tensor) -> Tensor:
        """x · √d / max(|x|, ε) for each head, and times a number for each head where there are such."""
        tape = self.tape
        length = tape.unary("clamp", tape.vector_norm(x))
        x = tape.mul(x, tape.scale(tape.unary("reciprocal", length)))
        scales = self.parameters_of(op)
        return tape.mul(x, tape.unsqueeze(scales[0], -1)) if scales else x
