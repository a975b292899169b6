"""Compressed convolutional attention (arXiv 2510.04476) as transformers 5.23 runs ZAYA's."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


class ShiftedAndScaled(Operation):
    __slots__ = ()


@lowering(ShiftedAndScaled)
def shifted_and_scaled(run: Lowering, op: ShiftedAndScaled, x: Tensor) -> Tensor:
    """(x + bias) · scale."""
    bias, scale = run.parameters_of(op)
    return run.tape.mul(run.tape.add(x, bias), scale)


class ScaledByWeight(Operation):
    __slots__ = ()


@lowering(ScaledByWeight)
def scaled_by_weight(run: Lowering, op: ScaledByWeight, x: Tensor) -> Tensor:
    return run.tape.mul(x, *run.parameters_of(op))


class Copied(Operation):
    __slots__ = ()


@lowering(Copied)
def copied(run: Lowering, op: Copied, x: Tensor) -> Tensor:
    return run.tape.clone_contiguous(x)


@record(kw_only=True, eq=False)
class ConvolvedHeads(Operation):
    num_heads: int
    num_key_value_heads: int
    head_dim: int


@lowering(ConvolvedHeads)
def convolved_heads(run: Lowering, op: ConvolvedHeads, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Both through a convolution by channel and one by head, plus means of both by group of heads."""
    tape = run.tape
    first, first_bias, second, second_bias = run.parameters_of(op)
    d, groups = op.head_dim, op.num_key_value_heads
    joint = tape.transpose(tape.cat([q, k]), 1, 2)
    rows, times = q.shape[:2], op.num_heads // groups
    residual = tape.transpose(tape.view(k, *rows, -1, d), 1, 2)
    residual = tape.transpose(tape.repeat_interleave_heads(residual, times), 1, 2)
    residual = tape.scale(tape.add(tape.view(q, *rows, -1, d), residual))
    key_residual = tape.reduce("mean", tape.view(residual, *rows, -1, times, d), -2, keepdim=False)
    joint = tape.pad(joint, -1, first.shape[-1] + second.shape[-1] - 2)
    joint = tape.depthwise_conv1d(tape.depthwise_conv1d(joint, first, first_bias, 0), second, second_bias, 0)
    query, key = tape.split(tape.transpose(joint, 1, 2), [q.shape[-1], k.shape[-1]])
    query, key = (tape.view(x, *rows, -1, d) for x in (query, key))
    return tape.add(query, residual), tape.add(key, key_residual)


class DelayedByOne(Operation):
    __slots__ = ()


@lowering(DelayedByOne)
def delayed_by_one(run: Lowering, op: DelayedByOne, x: Tensor, projected: Tensor) -> Tensor:
    """Each token's projection of the token before; before the first, that of zeros."""
    tape = run.tape
    zeros = tape.new((x.shape[0], 1, x.shape[-1]), x.dtype, op="zeros")
    return tape.cat([tape.linear(zeros, *run.parameters_of(op)), tape.narrow(projected, 1, run.sequence - 1)], 1)


class JoinedHalves(Operation):
    __slots__ = ()


@lowering(JoinedHalves)
def joined_halves(run: Lowering, op: JoinedHalves, a: Tensor, b: Tensor) -> Tensor:
    return run.tape.cat([a, b])


class HeadsOfLength(Operation):
    __slots__ = ()
    is_norm = True


@lowering(HeadsOfLength)
def heads_of_length(run: Lowering, op: HeadsOfLength, x: Tensor) -> Tensor:
    """x · √d / max(|x|, ε) for each head, and times a number for each head where there are such."""
    tape = run.tape
    length = tape.unary("clamp", tape.vector_norm(x))
    x = tape.mul(x, tape.scale(tape.unary("reciprocal", length)))
    scales = run.parameters_of(op)
    return tape.mul(x, tape.unsqueeze(scales[0], -1)) if scales else x
