"""State-space mixers as transformers 5.23 runs them in plain PyTorch.

The fused kernels of the packages mamba-ssm and causal-conv1d are another implementation: they keep far less for
backward, because they compute the states again. This profile is what runs where those packages are absent.
"""

from __future__ import annotations

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import product
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.models.operations.simple import input_tensor
from vramwise.records import record


@record(kw_only=True, eq=False)
class PaddingZeroed(Operation):
    """`always`: the class makes a mask of truths of its own, whether there is padding or not."""

    always: bool = False


@lowering(PaddingZeroed)
def padding_zeroed(run: Lowering, op: PaddingZeroed, x: Tensor) -> Tensor:
    """`apply_mask_to_padding_states`: a product with the mask, which backward keeps."""
    if op.always:
        if "truths" not in run.tables:
            run.tables["truths"] = (run.tape.new((run.batch, run.sequence), "bool", op="ones"),)
        return run.tape.mul(x, run.tape.unsqueeze(run.tables["truths"][0], -1))
    if not run.execution.padding or run.sequence == 1:
        return x
    if "padding" not in run.tables:
        run.tables["padding"] = (input_tensor(run, "attention_mask"),)
    return run.tape.mul(x, run.tape.unsqueeze(run.tables["padding"][0], -1))


class ChannelsFirst(Operation):
    __slots__ = ()


@lowering(ChannelsFirst)
def channels_first(run: Lowering, op: ChannelsFirst, x: Tensor) -> Tensor:
    return run.tape.transpose(x, 1, 2)


class ChannelsLast(Operation):
    __slots__ = ()


@lowering(ChannelsLast)
def channels_last(run: Lowering, op: ChannelsLast, x: Tensor) -> Tensor:
    return run.tape.transpose(x, 1, 2)


class Halves(Operation):
    __slots__ = ()


@lowering(Halves)
def halves(run: Lowering, op: Halves, x: Tensor) -> tuple[Tensor, ...]:
    """Equal pieces along the channels of a channels-first tensor."""
    return run.tape.chunk(x, len(op.outputs), 1)


class RowMajor(Operation):
    __slots__ = ()


@lowering(RowMajor)
def row_major(run: Lowering, op: RowMajor, x: Tensor) -> Tensor:
    return run.tape.contiguous(x)


@record(kw_only=True, eq=False)
class CausalConv1d(Operation):
    function: str | None


@lowering(CausalConv1d)
def causal_conv1d(run: Lowering, op: CausalConv1d, x: Tensor) -> Tensor:
    """`causal_conv1d_fn`: padded on both sides, cut to the sequence, activated."""
    tape = run.tape
    weight, *bias = run.parameters_of(op)
    padding = op.parameters[0].shape[-1] - 1
    wide = tape.depthwise_conv1d(tape.to(x, weight.dtype), weight, bias[0] if bias else None, padding)
    out, function = tape.narrow(wide, -1, x.shape[-1]), op.function
    out = apply_activation(tape, function, out) if function else out
    return tape.to(out, x.dtype)


class LocalizedFiltering(Operation):
    __slots__ = ()


@lowering(LocalizedFiltering)
def localized_filtering(run: Lowering, op: LocalizedFiltering, x: Tensor) -> Tensor:
    """Yuan's two convolutions over positions, (batch, sequence, width) seen as (batch, width, sequence, 1)."""
    tape, sequence = run.tape, x.shape[1]
    first, first_bias, second, second_bias = run.parameters_of(op)
    h = tape.unsqueeze(tape.permute(x, 0, 2, 1), -1)
    h = tape.narrow(tape.short_conv2d(h, first, first_bias), 2, sequence)
    h = tape.narrow(tape.short_conv2d(h, second, second_bias), 2, sequence)
    return tape.transpose(tape.select(tape.contiguous(tape.permute(h, 2, 0, 1, 3)), -1), 0, 1)


class ScaledTwice(Operation):
    __slots__ = ()


@lowering(ScaledTwice)
def scaled_twice(run: Lowering, op: ScaledTwice, x: Tensor) -> tuple[Tensor, Tensor]:
    """Yuan's shared queries and keys: one tensor times two weights plus two biases."""
    weight, bias = run.parameters_of(op)
    both = run.tape.add(run.tape.mul(run.tape.unsqueeze(x, 2), weight), bias)
    return run.tape.select(both, 2), run.tape.select(both, 2)


class SelectiveScan(Operation):
    __slots__ = ()
    package = "mamba-ssm"


@lowering(SelectiveScan)
def selective_scan(
    run: Lowering, op: SelectiveScan, x: Tensor, time_step: Tensor, inward: Tensor, outward: Tensor, gate: Tensor
) -> Tensor:  # fmt: skip
    """`mamba_selective_scan`: decays and inputs of all positions at once, then one state after another.

    Everything of shape (batch, channels, sequence, state) is fp32.
    """
    tape = run.tape
    bias, a_log, skip = run.parameters_of(op)
    a = tape.unary("neg", tape.unary("exp", tape.to(a_log, "fp32")))
    bias = tape.to(tape.to(bias, "fp32"), time_step.dtype)
    return scanned(run, x, time_step, a, bias, skip, inward, outward, gate)


def scanned(
    run: Lowering, x: Tensor, time_step: Tensor, a: Tensor, bias: Tensor, skip: Tensor, inward: Tensor, outward: Tensor,
    gate: Tensor,
) -> Tensor:  # fmt: skip
    tape = run.tape
    dt = tape.unary("softplus", tape.add(time_step, tape.unsqueeze(bias, -1)))
    steps = tape.unsqueeze(dt, -1)
    decay = tape.unary("exp", tape.mul(tape.unsqueeze(tape.unsqueeze(a, 0), 2), steps))
    scaled = tape.mul(steps, tape.to(tape.unsqueeze(inward, 1), "fp32"))
    added = tape.mul(scaled, tape.to(tape.unsqueeze(x, -1), "fp32"))
    pieces = _states_read(run, decay, added, outward, x.dtype)
    out = tape.cat([pieces], -1)
    skip = tape.unsqueeze(tape.unsqueeze(tape.to(skip, "fp32"), 0), -1)
    out = tape.add(out, tape.mul(x, skip))
    out = tape.mul(out, tape.unary("silu", gate))
    tape.record("locals", [dt, decay, scaled, added, pieces], [])  # names of the function, until it returns
    return out


def _states_read(run: Lowering, decay: Tensor, added: Tensor, outward: Tensor, dtype: str) -> Tensor:
    """The loop over positions: state = decay · state + added; output = state · C, of each position a tensor.

    Its steps are alike, so that they are recorded once with the positions as an axis. The first state is zeros
    of `dtype`; all but the last are kept by the product that follows, and each, in `dtype`, by the one with C.
    Backward of a step makes a gradient as large as all of `decay`, or `added`, which is zero but for that step, and
    adds it to the one of the steps behind it.
    """
    tape = run.tape
    batch, channels, sequence, state = decay.shape
    shape, grad = (batch, channels, state), decay.requires_grad or added.requires_grad
    (outward,) = tape.autocast_low(outward)
    state_dtype, read_dtype = promote(decay.dtype, dtype), tape.autocast or dtype
    zeros = tape.new(shape, dtype, op="zeros")
    earlier, last = (tape.new((n, *shape), state_dtype, op="add") for n in (sequence - 1, 1))
    read = [earlier, last]
    if read_dtype != state_dtype:
        read = [tape.new(states.shape, read_dtype, op="_to_copy") for states in read]
    factors = [(states, "chunks") for states in read] * outward.requires_grad + [(outward, "mat2")] * grad
    saves = [(zeros, "chunks"), (earlier, "chunks")] * decay.requires_grad + [(decay, "self")] * grad
    pieces = tape.new((*shape[:2], sequence), read_dtype, requires_grad=grad or outward.requires_grad, op="bmm")
    flops = 2 * product(decay.shape)
    tape.record(
        "bmm", [decay, added, outward], [pieces], saves + factors, flops=flops,
        backward_flops=flops * (grad + outward.requires_grad), backward_workspace_bytes=decay.nbytes * grad,
    )  # fmt: skip
    return pieces
