"""Gates on attention's result and sums in fp32 as transformers 5.23 runs them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.profiles.activations import apply_activation


class GatePaths:
    """Products with gates, widened sums."""

    tape: Tape
    hidden_dtype: str
    parameters_of: Callable[[Op], list[Tensor]]

    def softplus_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        """Laguna: softplus in fp32, cast back; one number for an element or for a head."""
        tape = self.tape
        gate = tape.to(tape.unary("softplus", tape.to(gate, "fp32")), x.dtype)
        if gate.shape[-1] == x.shape[-1]:
            return tape.mul(x, gate)
        heads = tape.view(x, *x.shape[:-1], op.settings["num_heads"], -1)
        return tape.view(tape.mul(heads, tape.unsqueeze(gate, -1)), *x.shape)

    def sigmoid_head_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        """Step 3.7: one sigmoid for each head, in the gate's dtype."""
        heads = self.tape.view(x, *x.shape[:-1], op.settings["num_heads"], -1)
        gate = self.tape.unary("sigmoid", self.tape.unsqueeze(gate, -1))
        return self.tape.view(self.tape.mul(heads, gate), *x.shape)

    def fp32_head_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        """Bailing hybrid: one sigmoid for each head, made in fp32 and cast to the layer's dtype."""
        tape = self.tape
        heads = tape.view(x, *x.shape[:-1], op.settings["num_heads"], -1)
        gate = tape.to(tape.unary("sigmoid", tape.to(gate, "fp32")), self.hidden_dtype)
        return tape.view(tape.mul(heads, tape.unsqueeze(gate, -1)), *x.shape)

    def biased_head_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        """Beam: sigmoid of a projection plus a bias for each head, which autocast does not cast."""
        tape, heads = self.tape, op.settings["num_heads"]
        (bias,) = self.parameters_of(op)
        gate = tape.add(tape.view(gate, *gate.shape[:-1], heads, -1), tape.unsqueeze(bias, -1))
        product = tape.mul(tape.view(x, *x.shape[:-1], heads, -1), tape.unary("sigmoid", gate))
        return tape.view(product, *x.shape)

    def widened_gate(self, op: Op, gate: Tensor, up: Tensor) -> Tensor:
        """Beam: act(gate)·up in fp32, cast back."""
        tape = self.tape
        h = apply_activation(tape, op.settings["function"], tape.to(gate, "fp32"))
        return tape.to(tape.mul(h, tape.to(up, "fp32")), gate.dtype)

    def sigmoid_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        """A.X K2: sigmoid and product in fp32, cast back; gates that come by head are laid side by side first."""
        tape = self.tape
        gate = tape.reshape(gate, *gate.shape[:2], -1) if gate.ndim > x.ndim else gate
        return tape.to(tape.mul(x, tape.unary("sigmoid", tape.to(gate, "fp32"))), x.dtype)

    def add_widened(self, op: Op, a: Tensor, b: Tensor) -> Tensor:
        """Both terms cast to fp32, the sum cast back to the layer's dtype."""
        return self.tape.to(self.tape.add(self.tape.to(a, "fp32"), self.tape.to(b, "fp32")), a.dtype)
