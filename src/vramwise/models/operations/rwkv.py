"""RWKV 4 as transformers 5.23 runs it in PyTorch.

The weighted sum goes token by token, as `rwkv_linear_attention_cpu` does. On CUDA, where the packages kernels and ninja
are installed, a fused kernel takes its place, which keeps its five operands instead of every step.
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering


class MixedWithPast(Operation):
    __slots__ = ()


@lowering(MixedWithPast)
def mixed_with_past(run: Lowering, op: MixedWithPast, x: Tensor) -> tuple[Tensor, ...]:
    """x·m + shifted(x)·(1 − m) for each vector m; the shift is a padding by one row and −1."""
    tape = run.tape
    shifted = tape.like(x, requires_grad=x.requires_grad, op="constant_pad_nd")
    tape.record("constant_pad_nd", [x], [shifted])
    return tuple(
        tape.add(tape.mul(x, m), tape.mul(shifted, tape.scale(m, "sub_scalar"))) for m in run.parameters_of(op)
    )


class WeightedSum(Operation):
    __slots__ = ()
    package = "kernels"


@lowering(WeightedSum)
def weighted_sum(run: Lowering, op: WeightedSum, key: Tensor, value: Tensor) -> Tensor:
    """Numerator and denominator of a sum with decaying weights, scaled by a maximum, in a loop over tokens.

    Steps are alike, so that they are recorded once. For the output each keeps, in fp32, both operands of its
    maximum, two exponentials, both sums so far, numerator and denominator; for the next step's sums an operand of
    the maximum and two exponentials, besides the key. The sums after the last token are not read.
    """
    tape, (decay, first) = run.tape, run.parameters_of(op)
    batch, sequence, width = key.shape
    decay = tape.unary("exp", decay if sequence != 1 else tape.detached(decay))
    reads = ("maximum", "add", "exp", "exp", "numerator", "denominator", "add", "add")
    kept = [tape.new((sequence, batch, width), "fp32", op=made) for made in reads]
    if sequence != 1:
        kept += [tape.new((sequence - 1, batch, width), "fp32", op=made) for made in ("add", "exp", "exp")]
        widened = tape.new((sequence - 1, batch, width), "fp32", op="_to_copy")
        kept.append(key if key.dtype == "fp32" else widened)
    out = tape.like(key, requires_grad=True, op="zeros_like")
    tape.record("div", [key, value, decay, first], [out], [(x, "steps") for x in (*kept, value)])
    return out
