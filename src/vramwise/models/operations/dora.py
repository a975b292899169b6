"""DoRA on a linear layer, as peft 0.21 computes it (tuners/lora/variants.py DoraLinearVariant, dora.py).

result + (m / ‖W + s·BA‖ − 1) · base + m / ‖W + s·BA‖ · B(A(x)) · s, with the norm outside the graph: the weight of the
adapters is made from an identity matrix, and lies beside two weights in the adapters' dtype for as long as that takes.
With dropout the base's result is made a second time, from what dropout left, and its weight in that dtype is kept.
"""

from __future__ import annotations

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor


def with_dora(
    tape: Tape, x: Tensor, result: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor,
    magnitude: Tensor, dropout: float,
) -> Tensor:  # fmt: skip
    """The adapted layer's result; `x` is in the adapters' dtype and has not been through dropout."""
    wide = tape.to(weight, x.dtype)
    norm = _norm(tape, wide, a, b)
    base = result
    if dropout:
        x = tape.dropout(x, dropout)
    scale = tape.div(magnitude, norm)
    low = tape.linear(tape.linear(x, a), b)
    if dropout:
        base = tape.linear(x, wide)
    elif bias is not None:
        base = tape.add(result, bias)
    changed = tape.add(tape.mul(tape.scale(scale), base), tape.scale(tape.mul(scale, low)))
    return tape.add(result, changed)


def _norm(tape: Tape, weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """‖W + s·BA‖ by rows. Its inputs need no gradient: what it makes goes as it is read."""
    rank, columns = a.shape
    rows = b.shape[0]
    identity = tape.new((columns, columns), a.dtype, op="eye")
    tape.record("eye", [], [identity])
    thin = tape.new((columns, rank), a.dtype, op="mm")
    tape.record("mm", [identity], [thin])
    product = tape.new((columns, rows), a.dtype, op="mm")
    tape.record("mm", [thin, identity], [product])  # the graph holds the identity matrix as long as the product
    total = tape.new((rows, columns), weight.dtype, op="add")
    tape.record("add", [weight, tape.scale(product)], [total])
    norm = tape.new((rows,), weight.dtype, op="norm")
    tape.record("norm", [total, product, identity], [norm])
    return norm
