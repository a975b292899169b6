"""Activation functions of transformers 5.23 (`ACT2FN`) as primitive operations.

act(gate)·up as one operation: inside experts, and where a kernel library joins what a block's list has as two.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record

_KERNELS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu", "relu": "relu", "tanh": "tanh",
    "sigmoid": "sigmoid", "mish": "mish", "gelu_python_tanh": "gelu",
}  # fmt: skip


def apply_activation(tape: Tape, function: str, x: Tensor) -> Tensor:
    """One kernel where torch has one, else the library's Python expression. Raises UnsupportedModelError."""
    if function in _KERNELS:
        return tape.unary(_KERNELS[function], x)
    if function in ("gelu_new", "gelu_fast"):
        return _gelu_new(tape, x) if function == "gelu_new" else _gelu_fast(tape, x)
    if function == "quick_gelu":
        return tape.mul(x, tape.unary("sigmoid", tape.scale(x)))
    if function == "bloom_gelu":
        return _bloom_gelu(tape, x)
    if function == "relu2":
        return tape.unary("pow", tape.unary("relu", x))
    raise UnsupportedModelError(f'activation "{function}" is not described; known are {", ".join(KNOWN)}')


KNOWN = (*_KERNELS, "gelu_new", "gelu_fast", "quick_gelu", "relu2")


def _gelu_new(tape: Tape, x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    half = tape.scale(x)
    cubic = tape.scale(tape.unary("pow", x))
    inner = tape.unary("tanh", tape.scale(tape.add(x, cubic)))
    return tape.mul(half, tape.scale(inner, "add_scalar"))


def _bloom_gelu(tape: Tape, x: Tensor) -> Tensor:
    """BLOOM's own autograd function: the expression runs outside autograd, only its input is kept."""
    y = _gelu_fast(tape, replace(x, requires_grad=False))
    out = replace(y, requires_grad=x.requires_grad)
    tape.record("GeLUFunction", [x], [out], [(x, "input")])
    return out


def _gelu_fast(tape: Tape, x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(x·0.7978845608·(1 + 0.044715·x·x)))."""
    half = tape.scale(x)
    square = tape.mul(tape.scale(x), x)
    inner = tape.mul(tape.scale(x), tape.scale(square, "add_scalar"))
    return tape.mul(half, tape.scale(tape.unary("tanh", inner), "add_scalar"))


def xielu(tape: Tape, x: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """xIELU (arXiv 2411.13010) in Python, as without the `xielu` wheel; two scalars of the module are buffers."""
    beta, epsilon = (tape.new((), positive.dtype, kind="buffer", op="buffer") for _ in range(2))
    alpha_p = tape.unary("softplus", positive)
    alpha_n = tape.scale(tape.unary("softplus", negative), "add_scalar")
    above = tape.new(x.shape, "bool", strides=x.strides, op="gt")
    left = tape.add(tape.mul(tape.mul(alpha_p, x), x), tape.mul(beta, x))
    bent = tape.add(tape.unary("expm1", tape.minimum(x, epsilon)), x)
    right = tape.add(tape.mul(bent, alpha_n), tape.mul(beta, x))
    return tape.where(above, left, right)


@record(kw_only=True, eq=False)
class GatedActivation(Operation):
    function: str


@record(kw_only=True, eq=False)
class ExpertGate(GatedActivation):
    """The same inside experts."""


@lowering(ExpertGate)
@lowering(GatedActivation)
def gated_activation(run: Lowering, op: GatedActivation, gate: Tensor, up: Tensor) -> Tensor:
    """An activation and a product, as transformers runs them."""
    return run.tape.mul(apply_activation(run.tape, op.function, gate), up)
