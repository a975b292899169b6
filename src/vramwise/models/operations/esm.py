"""What only ESM runs: masked tokens zeroed and made up for, GELU as an expression of its own."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering


class TokenDropout(Operation):
    __slots__ = ()


@lowering(TokenDropout)
def token_dropout(run: Lowering, op: TokenDropout, x: Tensor) -> Tensor:
    """Masked tokens become zero, the others are scaled by how many of each sequence are; fp32, cast back."""
    tape = run.tape
    masked = tape.new((run.batch, run.sequence, 1), "bool", op="eq")
    scaled = tape.scale(tape.masked_fill(x, masked))
    share = tape.new((run.batch, 1, 1), "fp32", op="rsub")
    return tape.to(tape.div(scaled, share), x.dtype)


class TimesAttentionMask(Operation):
    __slots__ = ()


@lowering(TimesAttentionMask)
def times_attention_mask(run: Lowering, op: TimesAttentionMask, x: Tensor) -> Tensor:
    """A product with the mask that comes with padded batches, whole numbers as they are."""
    if not run.execution.padding:
        return x
    return run.tape.mul(x, run.tape.new((*x.shape[:-1], 1), "int64", kind="input", op="attention_mask"))


class ErfGelu(Operation):
    __slots__ = ()


@lowering(ErfGelu)
def erf_gelu(run: Lowering, op: ErfGelu, x: Tensor) -> Tensor:
    """x · 0.5 · (1 + erf(x / √2)), every product kept."""
    tape = run.tape
    half = tape.scale(x)
    return tape.mul(half, tape.scale(tape.unary("erf", tape.scale(x)), "add_scalar"))
