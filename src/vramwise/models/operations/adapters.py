"""PEFT's adapters (0.21): beside linear layers, and added to the parameters of routers and experts.

DoRA on a linear layer, as peft 0.21 computes it (tuners/lora/variants.py DoraLinearVariant, dora.py).

result + (m / ‖W + s·BA‖ − 1) · base + m / ‖W + s·BA‖ · B(A(x)) · s, with the norm outside the graph: the weight of the
adapters is made from an identity matrix, and lies beside two weights in the adapters' dtype for as long as that takes.
With dropout the base's result is made a second time, from what dropout left, and its weight in that dtype is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vramwise.models.adapters import adapter_shapes
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation, Parameter
from vramwise.models.execution import Lora
from vramwise.models.lowering import ADAPTER_LEAVES, Lowering
from vramwise.models.operations.chosen_experts import StackedExperts


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


def with_adapter(run: Lowering, op: Operation, x: Tensor, result: Tensor) -> Tensor:
    """PEFT's `lora.Linear.forward` (0.21): result + B(A(dropout(x as adapter dtype))) · scaling."""
    lora = run.execution.lora
    if lora is None or not lora.wraps(op.parameters[0]):
        return result
    tape = run.tape
    a, b, *magnitude = _adapters(run, lora, op, op.parameters[0])
    if magnitude:
        weight, *bias = run.parameters_of(op)
        adapted = (a, b, magnitude[0], lora.dropout)
        wide = with_dora(tape, tape.to(x, lora.dtype), result, weight, bias[0] if bias else None, *adapted)
        return tape.to(wide, result.dtype)
    cast = tape.to(x, lora.dtype)
    delta = tape.scale(tape.linear(tape.linear(tape.dropout(cast, lora.dropout), a), b))
    summed = tape.to(tape.add(result, delta), result.dtype)
    if cast is not x:
        tape.record("locals", [cast], [])  # the frame's `x`, until it returns
    return summed


def with_adapters_of_turn(
    run: Lowering, base: Parameter, x: Tensor, result: Tensor, experts: tuple[int, int]
) -> Tensor:  # fmt: skip
    """The same beside the layers of a turn's experts, whose rows are written as all of them and a part of each.

    `experts`: how many there are, and in how many turns.
    """
    lora = run.execution.lora
    if lora is None or not lora.wraps(base):
        return result
    tape, (count, turns) = run.tape, experts
    narrow, wide = x.shape[-1], result.shape[-1]
    assert isinstance(narrow, int)
    assert isinstance(wide, int)
    inputs, outputs = narrow * turns, wide * turns
    ranks, of_turn = lora.rank * count // turns, -(-lora.rank // turns)
    a, b = (run.stand_in(base, shape, adapter=True) for shape in ((ranks, inputs), (outputs, ranks)))
    cast = tape.to(x, lora.dtype)
    low = tape.trained_product(tape.dropout(cast, lora.dropout), a, of_turn)
    delta = tape.scale(tape.trained_product(low, b, wide))
    summed = tape.to(tape.add(result, delta), result.dtype)
    if cast is not x:
        tape.record("locals", [cast], [])
    return summed


def with_embedding_adapter(run: Lowering, op: Operation, ids: Tensor, result: Tensor) -> Tensor:
    """PEFT's `lora.Embedding.forward` (0.21): result + A.T[ids] @ B.T · scaling, without dropout.

    Not described: DoRA, whose adapters of embeddings are left out of what is kept.
    """
    lora = run.execution.lora
    if lora is None or lora.dora or not lora.wraps(op.parameters[0]):
        return result
    tape = run.tape
    a, b = _adapters(run, lora, op, op.parameters[0])
    low, wide = tape.autocast_low(tape.embedding(ids, tape.transpose(a, 0, 1)), tape.transpose(tape.unleafed(b), 0, 1))
    delta = tape.scale(tape.view(tape.mm("mm", tape.view(low, -1, lora.rank), wide), *result.shape))
    return tape.to(tape.add(result, delta), result.dtype)


def _adapters(run: Lowering, lora: Lora, op: Operation, weight: Parameter) -> list[Tensor]:
    """A, B and DoRA's magnitude of one weight, the same wherever that is used."""
    names = [f"{weight.name}.{leaf}" for leaf in ADAPTER_LEAVES]
    shapes = adapter_shapes(op, weight, lora.rank, dora=lora.dora, by_itself=not lora.wraps_module(weight))
    for name, shape in zip(names, shapes, strict=False):
        if name not in run.parameters:
            run.parameters[name] = run.tape.parameter(shape, lora.dtype, requires_grad=True)
    return [run.parameters[name] for name in names[: len(shapes)]]


def low_rank_pair(run: Lowering, op: Operation, weight: Parameter) -> tuple[Tensor, Tensor]:
    """A and B of one weight that has adapters."""
    assert run.execution.lora is not None
    a, b = _adapters(run, run.execution.lora, op, weight)[:2]
    return a, b


def adapted_parameters(run: Lowering, op: Operation) -> list[Tensor]:
    """The parameters of a router or of experts, with the update of their adapters added where there are any."""
    return [merged() for merged in parameters_when_read(run, op)]


def parameters_when_read(run: Lowering, op: Operation) -> list[Callable[[], Tensor]]:
    """The same, each merged when it is called: PEFT parametrizes the module, whose code then reads one by one.

    What an update is made of is there before the first is read, that of the outermost wrapper (the last weight) first.
    """
    lora = run.execution.lora
    if lora is None:
        return [partial(run.parameter, parameter) for parameter in op.parameters]
    read = [
        _adapted(run, lora, op, p) if lora.wraps(p) and len(p.shape) > 1 and not p.name.endswith("bias")
        else partial(run.parameter, p)
        for p in reversed(op.parameters)
    ]  # fmt: skip
    return read[::-1]


def _adapted(run: Lowering, lora: Lora, op: Operation, parameter: Parameter) -> Callable[[], Tensor]:
    """PEFT's `ParamWrapper` (0.21): the merged weight, in the weight's dtype, at full size."""
    tape, weight = run.tape, run.parameter(parameter)
    a, b = _adapters(run, lora, op, parameter)[:2]
    if len(parameter.shape) == 2:
        delta = tape.to(tape.scale(tape.mm("mm", *tape.autocast_low(b, a))), weight.dtype)
        return partial(tape.add, weight, delta)
    experts, outer = parameter.shape[0], b.shape[0]
    a = tape.reshape(a, experts, -1, a.shape[-1])
    b = tape.reshape(b, outer, -1, experts)
    left, right = tape.permute(b, 2, 0, 1), a
    if isinstance(op, StackedExperts) and op.transposed:
        left, right = tape.transpose(a, 1, 2), tape.transpose(left, 1, 2)
    left, right = tape.to(left, weight.dtype), tape.to(right, weight.dtype)
    return partial(tape.mm, "baddbmm", left, right, weight)
