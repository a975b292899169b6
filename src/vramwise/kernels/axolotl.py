"""axolotl's kernels for adapters: a gated MLP in one function of autograd, and attention's projections in one each.

axolotl 0.18 kernels/lora.py, monkeypatch/lora_kernels.py. An MLP whose three products have adapters keeps its input,
gate and up; backward writes their gradients over them beside one tensor as wide, which first is the gradient of the
hidden values and then these again. A projection keeps its input. Adapters are computed in the input's dtype, and their
update is added to the base's answer where that is.

Not described: DoRA, adapters of embeddings; that queries, keys and values share one gradient of their input, and that
0.10 to 0.17 write that of an input over the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from vramwise.kernels.fused import GATES, ONE_KERNEL, fused_gate, with_joined_gates
from vramwise.models.autograd.size import product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Modality, Operation, Value
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.activations import GatedActivation
from vramwise.models.operations.adapters import low_rank_pair
from vramwise.models.operations.simple import Linear, base_product, linear
from vramwise.records import record

ADAPTED = "linear layers with adapters"
_TEXT: frozenset[Modality] = frozenset({"text"})
_GATE, _UP, _DOWN = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
_TOGETHER = ("q_proj", "k_proj", "v_proj")
_PROJECTIONS = frozenset({
    *(f"self_attn.{name}" for name in (*_TOGETHER, "o_proj")),
    *(f"linear_attn.{name}" for name in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")),
})  # fmt: skip


@record(kw_only=True, eq=False)
class AdaptedMlp(Operation):
    """The products of a gated MLP and what is between them; `singles`: its operations as they were, in order."""

    gate: Linear
    up: Linear
    activation: GatedActivation
    down: Linear
    singles: tuple[Operation, ...]


def adapted_linear(run: Lowering, op: Linear, x: Tensor) -> Tensor:
    """A projection of attention with its adapters; any other linear layer runs as it is."""
    if not _is_adapted(run, op) or _end(op) not in _PROJECTIONS:
        return linear(run, op, x)
    lora, tape = run.execution.lora, run.tape
    assert lora is not None
    dropped = tape.dropout(x, lora.dropout)
    with _inside_a_function(tape):
        out, read, casts = _product(run, op, x, dropped)
    kept = [(x, "input"), (dropped, "input"), *((cast, "adapters") for cast in casts)]
    return _leaving(tape, "adapted_product", [x, dropped, *read], out, kept)


def adapted_mlp(run: Lowering, op: AdaptedMlp, x: Tensor) -> Tensor:
    """An MLP whose three products have adapters; another runs one by one."""
    lora, tape = run.execution.lora, run.tape
    if lora is None or not all(_is_adapted(run, one) for one in (op.gate, op.up, op.down)):
        return _one_by_one(run, op, x)
    dropped = tape.dropout(x, lora.dropout)
    with _inside_a_function(tape):
        with tape.inside(op.gate.module):
            gate, *of_gate = _product(run, op.gate, x, dropped)
        with tape.inside(op.up.module):
            up, *of_up = _product(run, op.up, x, dropped)
        with tape.inside(op.activation.module):
            hidden = fused_gate(run, op.activation, gate, up)
        out, *of_down = _product(run, op.down, hidden, hidden)
    read, casts = ([tensor for one in (of_gate, of_up, of_down) for tensor in one[place]] for place in (0, 1))
    kept = [(x, "input"), (dropped, "input"), (gate, "gate or up"), (up, "gate or up")]
    kept += [(cast, "adapters") for cast in casts]
    return _leaving(tape, "adapted_mlp", [x, dropped, *read], out, kept)


def _one_by_one(run: Lowering, op: AdaptedMlp, x: Tensor) -> Tensor:
    values = {op.inputs[0]: x}
    for one in op.singles:
        with run.tape.inside(one.module):
            made = run.lowered(one, *(values[value] for value in one.inputs))
        values.update(zip(one.outputs, made, strict=True))
    return values[op.outputs[0]]


def _product(
    run: Lowering, op: Linear, x: Tensor, dropped: Tensor
) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # fmt: skip
    """`matmul_lora`: its answer, the parameters that it reads, the adapters in the input's dtype."""
    tape = run.tape
    pair = low_rank_pair(run, op, op.parameters[0])
    result = base_product(run, op, x)
    a, b = (tape.to(one, x.dtype) for one in pair)
    low = tape.linear(dropped, a)
    out = Tensor(result.shape, result.strides, result.dtype, result.storage)
    tape.record("add_", [result, low, b], [out], flops=2 * product(low.shape) * b.shape[0])
    return (
        out,
        [*run.parameters_of(op), *pair],
        [cast for cast, one in zip((a, b), pair, strict=True) if cast is not one],
    )


def _leaving(
    tape: Tape, name: str, inputs: list[Tensor], made: Tensor, kept: list[tuple[Tensor, str]]
) -> Tensor:  # fmt: skip
    """What a function of autograd answers: the tensor as it is there, with one node behind it."""
    inputs = list(dict.fromkeys(inputs))
    grad = tape.grad_enabled and any(one.requires_grad for one in inputs)
    out = Tensor(made.shape, made.strides, made.dtype, made.storage, grad)
    rows = product(inputs[0].shape[:-1])
    read = sum(one.numel * (1 + one.requires_grad) for one in inputs if one.is_parameter)
    tape.record(name, inputs, [out], list(dict.fromkeys(kept)), backward_flops=2 * rows * read)
    return out


@contextmanager
def _inside_a_function(tape: Tape) -> Iterator[None]:
    """Autograd records nothing inside."""
    before, tape.grad_enabled = tape.grad_enabled, False
    try:
        yield
    finally:
        tape.grad_enabled = before


def _end(op: Linear) -> str:
    """The last two names of its module."""
    return ".".join(op.parameters[0].module.split(".")[-2:])


def _is_adapted(run: Lowering, op: Linear) -> bool:
    """Whether it has adapters that the kernels know; queries, keys and values must have them together."""
    lora = run.execution.lora
    if lora is None or lora.dora:
        return False
    weight = op.parameters[0]
    around, _, name = weight.module.rpartition(".")
    if name not in _TOGETHER:
        return lora.wraps(weight)
    return all(lora.wraps(replace(weight, name=f"{around}.{each}.weight")) for each in _TOGETHER)


def with_joined_mlps(block: Block) -> Block:
    """Products and gate of each layer's own MLP as one operation, where nothing else reads what is between them."""
    gated = with_joined_gates(block)
    makers = _makers(gated)
    readers = Counter(value for op in gated.ops for value in op.inputs)
    readers.update(gated.outputs.values())
    joined: dict[Value, AdaptedMlp] = {}
    gone: set[Value] = set()
    for down in gated.operations(Linear):
        found = _mlp_before(down, makers, readers, block)
        if found is not None:
            joined[down.outputs[0]] = found
            gone.update(value for op in found.singles for value in op.outputs if op.outputs != down.outputs)
    if not joined:
        return block
    ops = (joined.get(op.outputs[0], op) if op.outputs else op for op in block.ops if gone.isdisjoint(op.outputs))
    return replace(block, ops=tuple(ops))


def _makers(block: Block) -> dict[Value, Operation]:
    return {value: op for op in block.ops for value in op.outputs}


def _mlp_before(
    down: Linear, makers: Mapping[Value, Operation], readers: Counter[Value], block: Block
) -> AdaptedMlp | None:
    activation = makers.get(down.inputs[0])
    if _end(down) != _DOWN or type(activation) is not GatedActivation or activation.function not in ONE_KERNEL:
        return None
    gate, up = (makers.get(value) for value in activation.inputs)
    if type(gate) is not Linear or type(up) is not Linear or gate.inputs != up.inputs:
        return None
    between = (*activation.outputs, *gate.outputs, *up.outputs)
    if (_end(gate), _end(up)) != (_GATE, _UP) or any(readers[value] != 1 for value in between):
        return None
    return AdaptedMlp(
        module=down.module, inputs=gate.inputs, outputs=down.outputs,
        parameters=(*gate.parameters, *up.parameters, *down.parameters),
        gate=gate, up=up, activation=activation, down=down, singles=_between(gate.inputs[0], down, block),
    )  # fmt: skip


def _between(start: Value, end: Operation, block: Block) -> tuple[Operation, ...]:
    """The block's operations from what reads a value to another that is made of it alone."""
    makers, found, open_ = _makers(block), {end.outputs[0]}, [end]
    while open_:
        for value in open_.pop().inputs:
            if value != start and value not in found:
                found.add(value)
                open_.append(makers[value])
    return tuple(op for op in block.ops if not found.isdisjoint(op.outputs))


RECORD = Kernels(
    name="axolotl",
    overrides=(
        Override(Linear, adapted_linear, ADAPTED, modalities=_TEXT),
        Override(AdaptedMlp, adapted_mlp, f"{GATES} between them", rewrite=with_joined_mlps, modalities=_TEXT),
    ),
    order=6,
    for_adapters=True,
    source="axolotl 0.18 kernels/lora.py, monkeypatch/lora_kernels.py",
)
