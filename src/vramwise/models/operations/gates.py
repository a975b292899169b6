"""Gates on attention's result and sums in fp32 as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.records import record


@record(kw_only=True, eq=False)
class SoftplusGate(Operation):
    num_heads: int


@lowering(SoftplusGate)
def softplus_gate(run: Lowering, op: SoftplusGate, x: Tensor, gate: Tensor) -> Tensor:
    """Laguna: softplus in fp32, cast back; one number for an element or for a head."""
    tape = run.tape
    gate = tape.to(tape.unary("softplus", tape.to(gate, "fp32")), x.dtype)
    if gate.shape[-1] == x.shape[-1]:
        return tape.mul(x, gate)
    heads = tape.view(x, *x.shape[:-1], op.num_heads, -1)
    return tape.view(tape.mul(heads, tape.unsqueeze(gate, -1)), *x.shape)


@record(kw_only=True, eq=False)
class SigmoidHeadGate(Operation):
    num_heads: int


@lowering(SigmoidHeadGate)
def sigmoid_head_gate(run: Lowering, op: SigmoidHeadGate, x: Tensor, gate: Tensor) -> Tensor:
    """Step 3.7: one sigmoid for each head, in the gate's dtype."""
    heads = run.tape.view(x, *x.shape[:-1], op.num_heads, -1)
    gate = run.tape.unary("sigmoid", run.tape.unsqueeze(gate, -1))
    return run.tape.view(run.tape.mul(heads, gate), *x.shape)


@record(kw_only=True, eq=False)
class Fp32HeadGate(Operation):
    num_heads: int


@lowering(Fp32HeadGate)
def fp32_head_gate(run: Lowering, op: Fp32HeadGate, x: Tensor, gate: Tensor) -> Tensor:
    """Bailing hybrid: one sigmoid for each head, made in fp32 and cast to the layer's dtype."""
    tape = run.tape
    heads = tape.view(x, *x.shape[:-1], op.num_heads, -1)
    gate = tape.to(tape.unary("sigmoid", tape.to(gate, "fp32")), run.hidden_dtype)
    return tape.view(tape.mul(heads, tape.unsqueeze(gate, -1)), *x.shape)


@record(kw_only=True, eq=False)
class BiasedHeadGate(Operation):
    num_heads: int


@lowering(BiasedHeadGate)
def biased_head_gate(run: Lowering, op: BiasedHeadGate, x: Tensor, gate: Tensor) -> Tensor:
    """Beam: sigmoid of a projection plus a bias for each head, which autocast does not cast."""
    tape, heads = run.tape, op.num_heads
    (bias,) = run.parameters_of(op)
    gate = tape.add(tape.view(gate, *gate.shape[:-1], heads, -1), tape.unsqueeze(bias, -1))
    product = tape.mul(tape.view(x, *x.shape[:-1], heads, -1), tape.unary("sigmoid", gate))
    return tape.view(product, *x.shape)


@record(kw_only=True, eq=False)
class WidenedGate(Operation):
    function: str


@lowering(WidenedGate)
def widened_gate(run: Lowering, op: WidenedGate, gate: Tensor, up: Tensor) -> Tensor:
    """Beam: act(gate)·up in fp32, cast back."""
    tape = run.tape
    h = apply_activation(tape, op.function, tape.to(gate, "fp32"))
    return tape.to(tape.mul(h, tape.to(up, "fp32")), gate.dtype)


class SigmoidGate(Operation):
    __slots__ = ()


@lowering(SigmoidGate)
def sigmoid_gate(run: Lowering, op: SigmoidGate, x: Tensor, gate: Tensor) -> Tensor:
    """A.X K2: sigmoid and product in fp32, cast back; gates that come by head are laid side by side first."""
    tape = run.tape
    gate = tape.reshape(gate, *gate.shape[:2], -1) if gate.ndim > x.ndim else gate
    return tape.to(tape.mul(x, tape.unary("sigmoid", tape.to(gate, "fp32"))), x.dtype)


class AddWidened(Operation):
    __slots__ = ()


@lowering(AddWidened)
def add_widened(run: Lowering, op: AddWidened, a: Tensor, b: Tensor) -> Tensor:
    """Both terms cast to fp32, the sum cast back to the layer's dtype."""
    return run.tape.to(run.tape.add(run.tape.to(a, "fp32"), run.tape.to(b, "fp32")), a.dtype)
