"""RecurrentGemma's real-gated linear recurrence as transformers 5.23 runs it, which has no fused kernel for it."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering


class PlainCausalConv1d(Operation):
    __slots__ = ()


@lowering(PlainCausalConv1d)
def plain_causal_conv1d(run: Lowering, op: PlainCausalConv1d, x: Tensor) -> Tensor:
    """`nn.Conv1d` of every channel for itself, padded on both sides and cut to the sequence."""
    weight, bias = run.parameters_of(op)
    wide = run.tape.depthwise_conv1d(x, weight, bias, op.parameters[0].shape[-1] - 1)
    return run.tape.narrow(wide, -1, x.shape[-1])


class RealGatedRecurrence(Operation):
    __slots__ = ()


@lowering(RealGatedRecurrence)
def real_gated_recurrence(run: Lowering, op: RealGatedRecurrence, x: Tensor) -> Tensor:
    """`RecurrentGemmaRglru`: h_t = a_t·h_(t-1) + sqrt(1 − a_t²)·i_t·x_t with gates a, i by head.

    Documents begin at position 0 only; every use of that mask makes one of its own.
    """
    tape = run.tape
    rate, input_weight, input_bias, gate_weight, gate_bias = run.parameters_of(op)
    heads = input_weight.shape[0]
    rows = tape.permute(tape.reshape(x, x.shape[0] * x.shape[1], heads, -1), 1, 0, 2)
    input_gate = _gate_by_head(run, rows, input_weight, input_bias, x)
    gate = _gate_by_head(run, rows, gate_weight, gate_bias, x)
    logarithm = tape.mul(tape.scale(gate), tape.unary("softplus", rate))
    # A sequence of one token reads no state: what leads there alone is dropped.
    decay = tape.unary("exp", logarithm if run.sequence != 1 else tape.detached(logarithm))
    square = tape.unary("exp", tape.scale(logarithm))
    gated = tape.mul(x, input_gate)
    rest = tape.scale(square, "sub_scalar")
    root = tape.like(rest, requires_grad=rest.requires_grad, op="sqrt")
    tape.record("SqrtBoundDerivative", [rest], [root], [(rest, "x")])
    root = tape.scale(tape.mul(_no_start(run), root), "add_mask")
    inputs = tape.mul(gated, tape.to(root, x.dtype))
    decay = tape.mul(decay, _no_start(run))
    return inputs if run.sequence == 1 else _recurrent_states(run, inputs, decay)


def _gate_by_head(run: Lowering, rows: Tensor, weight: Tensor, bias: Tensor, like: Tensor) -> Tensor:
    """sigmoid of a product for every head, (h, b·s, d) -> (b, s, w)."""
    tape = run.tape
    product = tape.baddbmm(tape.unsqueeze(bias, 1), rows, weight)
    return tape.unary("sigmoid", tape.reshape(tape.transpose(product, 0, 1), *like.shape))


def _no_start(run: Lowering) -> Tensor:
    return run.tape.new((1, run.sequence, 1), "bool", op="bitwise_not")


def _recurrent_states(run: Lowering, inputs: Tensor, decay: Tensor) -> Tensor:
    """The loop over positions in fp32: its steps are alike, so that they are recorded once.

    The first state is zeros without a gradient, for which no decay is kept; the last is read by no step. A
    decay of 16 bit is cast at every step.
    """
    tape = run.tape
    batch, sequence, width = inputs.shape
    shape, grad = (batch, width), inputs.requires_grad or decay.requires_grad
    zeros = tape.new(shape, "fp32", op="zeros")
    steps = decay
    if decay.dtype != "fp32":
        steps = tape.new((sequence - 1, *shape), "fp32", requires_grad=decay.requires_grad, op="_to_copy")
        tape.record("_to_copy", [decay], [steps])
    earlier = tape.new((sequence - 1, *shape), "fp32", requires_grad=grad, op="add")
    last = tape.new(shape, "fp32", requires_grad=grad, op="add")
    saves = [(zeros, "other"), (earlier, "other")] * decay.requires_grad + [(steps, "self")] * grad
    tape.record("mul", [steps, inputs, zeros], [earlier, last], saves)
    out = tape.like(inputs, requires_grad=grad, op="zeros_like")
    tape.record("copy_", [earlier, last], [out])
    return out
