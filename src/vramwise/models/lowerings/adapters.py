"""PEFT's adapters (0.21): beside linear layers, and added to the parameters of routers and experts."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op, Parameter
from vramwise.models.lowering import Lowering
from vramwise.models.lowerings.dora import with_dora


def with_adapter(run: Lowering, op: Op, x: Tensor, result: Tensor) -> Tensor:
    """PEFT's `lora.Linear.forward` (0.21): result + B(A(dropout(x as adapter dtype))) · scaling."""
    lora = run.execution.lora
    if lora is None or op.module.rsplit(".", 1)[-1] not in lora.targets:
        return result
    tape = run.tape
    name = op.parameters[0].name
    width = op.outputs[0].width
    a = _adapter(run, f"{name}.lora_A", (lora.rank, op.inputs[0].width), lora.dtype)
    b = _adapter(run, f"{name}.lora_B", (width, lora.rank), lora.dtype)
    if lora.dora:
        weight, *bias = run.parameters_of(op)
        magnitude = _adapter(run, f"{name}.lora_magnitude", (width,), lora.dtype)
        adapted = (a, b, magnitude, lora.dropout)
        wide = with_dora(tape, tape.to(x, lora.dtype), result, weight, bias[0] if bias else None, *adapted)
        return tape.to(wide, result.dtype)
    x = tape.dropout(tape.to(x, lora.dtype), lora.dropout)
    delta = tape.scale(tape.linear(tape.linear(x, a), b))
    return tape.to(tape.add(result, delta), result.dtype)


def _adapter(run: Lowering, name: str, shape: tuple[int, ...], dtype: str) -> Tensor:
    if name not in run.parameters:
        run.parameters[name] = run.tape.parameter(shape, dtype, requires_grad=True)
    return run.parameters[name]


def adapted_parameters(run: Lowering, op: Op) -> list[Tensor]:
    """The parameters of a router or of experts, with the update of their adapters added where there are any."""
    lora = run.execution.lora
    if lora is None or op.module.rsplit(".", 1)[-1] not in lora.targets:
        return run.parameters_of(op)
    # Innermost wrapper last: PEFT activates the adapter of the outermost one, the last weight, first.
    adapted = [
        _adapted(run, op, p, run.parameter(p)) if len(p.shape) > 1 and not p.name.endswith("bias")
        else run.parameter(p)
        for p in reversed(op.parameters)
    ]  # fmt: skip
    return adapted[::-1]


def _adapted(run: Lowering, op: Op, parameter: Parameter, weight: Tensor) -> Tensor:
    """PEFT's `ParamWrapper` (0.21): the merged weight, in the weight's dtype, at full size."""
    lora, tape, name = run.execution.lora, run.tape, parameter.name
    assert lora is not None
    if len(parameter.shape) == 2:
        rows, columns = parameter.shape
        a = _adapter(run, f"{name}.lora_A", (lora.rank, columns), lora.dtype)
        b = _adapter(run, f"{name}.lora_B", (rows, lora.rank), lora.dtype)
        delta = tape.scale(tape.mm("mm", *tape.autocast_low(b, a)))
        return tape.add(weight, tape.to(delta, weight.dtype))
    # A fused gate and up projection stands for two linear layers of older checkpoints, each with `rank`.
    rank = lora.rank * op.settings["fused_branches"] if parameter is op.parameters[0] else lora.rank
    experts, first, second = parameter.shape
    inner, outer = (first, second) if op.settings["transposed"] else (second, first)
    a = tape.reshape(_adapter(run, f"{name}.lora_A", (rank * experts, inner), lora.dtype), experts, rank, inner)
    b = tape.reshape(_adapter(run, f"{name}.lora_B", (outer, rank * experts), lora.dtype), outer, rank, experts)
    left, right = tape.permute(b, 2, 0, 1), a
    if op.settings["transposed"]:
        left, right = tape.transpose(a, 1, 2), tape.transpose(left, 1, 2)
    return tape.mm("baddbmm", tape.to(left, weight.dtype), tape.to(right, weight.dtype), weight)
