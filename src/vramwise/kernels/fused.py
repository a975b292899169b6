"""What most kernel libraries run: norms, gated activations and rotations by position as one kernel each.

    RMS norm          keeps its input and 1/rms; its output has the input's dtype
    layer norm        keeps its input, mean and 1/σ
    act(gate)·up      keeps gate and up, and writes their gradients into them
    rotation          in place; keeps the tables alone

Those of a kind that no kernel is written for (norms without a weight, other activations) run as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.execution import Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.activations import ExpertGate, GatedActivation, gated_activation
from vramwise.models.operations.attention import Rotary, rotary_table, tables_of
from vramwise.models.operations.latent import RotaryComplex, RotaryHalves, complex_table
from vramwise.models.operations.norms import LayerNorm, RmsNorm, layer_norm, rms_norm
from vramwise.models.operations.simple import Activation, Multiply

NORMS = "RMS norms"
LAYER_NORMS = "layer norms in Python"
GATES = "products with SiLU or GELU"
ROTATIONS = "rotations by cosine and sine"

ONE_KERNEL = frozenset({"silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_python_tanh"})
_LAYER_NORMS = frozenset({"python", "one-plus-weight", "low-precision"})
_MLP = frozenset({"mlp", "experts", "vision", "audio"})


def fused_norm(run: Lowering, op: RmsNorm, x: Tensor) -> Tensor:
    """An RMS norm with a weight; without one it runs as it is."""
    weights = run.parameters_of(op)
    if not weights:
        return rms_norm(run, op, x)
    out = run.tape.like(x, requires_grad=_any_grad(x, *weights), op="fused_rms_norm")
    rstd = run.tape.new(x.shape[:-1], "fp32", op="rstd")
    run.tape.record("fused_rms_norm", [x, *weights], [out, rstd], [(x, "input"), (rstd, "rstd")])
    return out


def in_autocasts_dtype(run: Lowering, x: Tensor) -> Tensor:
    """The tensor as a kernel gets it whose library casts under autocast."""
    autocast = run.tape.autocast
    return run.tape.to(x, autocast) if autocast is not None and x.dtype == "fp32" else x


def fused_layer_norm(run: Lowering, op: LayerNorm, x: Tensor, *, of_torch_too: bool = False) -> Tensor:
    """A layer norm that a class writes in Python or with casts around torch's; torch's own mostly runs as it is."""
    if op.style not in _LAYER_NORMS and not (of_torch_too and op.style == "torch"):
        return layer_norm(run, op, x)
    weights, tape = [*run.parameters_of(op), None, None], run.tape
    autocast, tape.autocast = tape.autocast, None  # a kernel of its own, which autocast widens nothing for
    try:
        return tape.layer_norm(x, weights[0], weights[1])
    finally:
        tape.autocast = autocast


def fused_gate(run: Lowering, op: GatedActivation, gate: Tensor, up: Tensor) -> Tensor:
    """act(gate)·up of an activation that kernels are written for; another runs as it is."""
    if op.function not in ONE_KERNEL:
        return gated_activation(run, op, gate, up)
    out = run.tape.like(up, requires_grad=_any_grad(gate, up), op="fused_gated_activation")
    kept = [(gate, "gate or up"), (up, "gate or up")]
    run.tape.record("fused_gated_activation", [gate, up], [out], kept)
    return out


def turned_in_place(run: Lowering, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    """Queries and keys turned where they are."""
    return _turned(run, tables_of(run, op, turned[0].dtype), turned)


def turned_as_laid_out(run: Lowering, op: Rotary, *turned: Tensor) -> tuple[Tensor, ...]:
    """The same, laid out as the class's own function leaves it: heads that it joins row by row."""
    joins = op.style.endswith("joined") or op.rotary_dim != turned[0].shape[-1]
    return _turned(run, tables_of(run, op, turned[0].dtype), turned, row_major=joins)


def turned_by_halves(run: Lowering, op: RotaryHalves, *turned: Tensor) -> tuple[Tensor, ...]:
    """The same by tables of half a head's width."""
    return _turned(run, rotary_table(run, "halves", op.inputs[0].width // 2), turned)


def turned_by_complex_numbers(run: Lowering, op: RotaryComplex, *turned: Tensor) -> tuple[Tensor, ...]:
    """The same by a table of complex numbers."""
    return _turned(run, (complex_table(run, op.inputs[0].width),), turned)


def _turned(
    run: Lowering, tables: tuple[Tensor, ...], turned: tuple[Tensor, ...], *, row_major: bool = False
) -> tuple[Tensor, ...]:
    return rotated(run, "rotary_in_place", tables, turned, row_major=row_major)


def rotated(
    run: Lowering, kernel: str, tables: tuple[Tensor, ...], turned: tuple[Tensor, ...], *, row_major: bool
) -> tuple[Tensor, ...]:
    """Each turned by one kernel, which keeps the tables; `row_major`: laid out row by row, not as it was."""
    tape, outs = run.tape, []
    for x in turned:
        if row_major:
            out = tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op=kernel)
        else:
            out = tape.like(x, requires_grad=x.requires_grad, op=kernel)
        tape.record(kernel, [x, *tables], [out], [(table, "tables") for table in tables])
        outs.append(out)
    return tuple(outs)


def _any_grad(*tensors: Tensor) -> bool:
    return any(tensor.requires_grad for tensor in tensors)


def with_joined_gates(block: Block) -> Block:
    """Activation and product of an MLP's gate as one operation, where nothing else reads the activation."""
    makers = {value: op for op in block.ops for value in op.outputs}
    readers = Counter(value for op in block.ops for value in op.inputs)
    readers.update(block.outputs.values())
    gates = {
        op.outputs[0]: op
        for op in block.operations(Activation)
        if op.function in ONE_KERNEL and readers[op.outputs[0]] == 1 and _is_of_mlp(op, makers)
    }
    products = {op.outputs: (gates[x], op) for op in block.operations(Multiply) for x in op.inputs if x in gates}
    joined = {made: _joined(gate, product) for made, (gate, product) in products.items()}
    gone = {gate.outputs for gate, _ in products.values()}
    ops = (joined.get(op.outputs, op) for op in block.ops if op.outputs not in gone)
    return replace(block, ops=tuple(ops)) if products else block


def _joined(gate: Activation, product: Multiply) -> GatedActivation:
    up = next(x for x in product.inputs if x != gate.outputs[0])
    inputs = (gate.inputs[0], up)
    return GatedActivation(module=gate.module, inputs=inputs, outputs=product.outputs, function=gate.function)


def _is_of_mlp(op: Operation, makers: Mapping[Value, Operation]) -> bool:
    """Whether the product that its input comes from is one of an MLP's, not of a mixer's or of attention's gate."""
    maker = makers.get(op.inputs[0])
    while maker is not None and not maker.parameters and maker.inputs:
        maker = makers.get(maker.inputs[0])
    return maker is not None and any(parameter.part in _MLP for parameter in maker.parameters)


OF_EVERY_TYPE = (
    Override(RmsNorm, fused_norm, NORMS),
    Override(LayerNorm, fused_layer_norm, LAYER_NORMS),
    Override(GatedActivation, fused_gate, GATES, rewrite=with_joined_gates),
    Override(ExpertGate, fused_gate, GATES),
    Override(Rotary, turned_as_laid_out, ROTATIONS),
)
"""What a library replaces that has kernels for whatever type of model runs them."""
