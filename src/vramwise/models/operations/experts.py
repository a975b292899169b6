"""ExpertMlps as transformers 5.23 runs them (grouped products), and PEFT's adapters on fused parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation, Parameter
from vramwise.models.lowering import Lowering, Variants, lowering
from vramwise.models.operations.activations import ExpertGate, apply_activation
from vramwise.models.operations.adapters import parameters_when_read, with_adapters_of_turn
from vramwise.models.operations.chosen_experts import StackedExperts
from vramwise.models.operations.gates import WidenedGate, widened_gate
from vramwise.records import record

GATES: Variants[Callable[[Lowering, ExpertMlps, Tensor], Tensor]] = Variants("gates of experts")
EXPERTS: Variants[Callable[..., Tensor]] = Variants("experts")


MOST_TURNS = 16


@record(kw_only=True, eq=False)
class ExpertMlps(StackedExperts):
    function: str = ""
    gating: str = ""
    style: str = ""
    chosen: int = 0
    chunk_size: int = 0
    dropout: float = 0.0

    @property
    def idle_numel(self) -> int:
        total = sum(parameter.numel for parameter in self.parameters)
        return total - total * self.experts_per_token // self.num_experts

    @property
    def branches(self) -> int:
        """Linear layers that read an expert's input where it is made of such layers, one more besides; else 0."""
        if self.style or len(self.parameters) != 2:
            return 0
        return {"halves": 2, "none": 1}.get(self.gating, 0)

    @property
    def inner_width(self) -> int:
        """Values inside one expert for each token: the other side of the weight that is cut by rows; 0 without one."""
        for parameter in self.parameters:
            if parameter.shard == "expert_row" and len(parameter.shape) == 3:
                _, one, other = parameter.shape
                return one if other == self.inputs[0].width else other
        return 0


@lowering(ExpertMlps)
def experts(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *indices: Tensor) -> Tensor:
    """`grouped_mm_experts_forward`: rows sorted by expert, two grouped products, weighted and summed.

    Classes that do not use it name the `style` of their own code.
    """
    tape = run.tape
    if op.style:
        return EXPERTS[op.style](run, op, x, weights, *indices)
    if run.execution.expert_modules and op.branches and not _trains(run, op):
        return _experts_in_turn(run, op, x, weights)
    gate_up, down, *biases = parameters_when_read(run, op)
    hidden = tape.reshape(x, -1, x.shape[-1])
    k = op.experts_per_token
    numbers, order, offsets = tape.sorted_by_expert(tape.reshape(indices[0], -1), op.num_experts)
    source_rows = tape.indices_from("floor_divide", order)
    picked = tape.index_rows(hidden, source_rows)
    sample_weights = tape.index_rows(tape.reshape(weights, -1), order)
    matrices = gate_up()
    up_bias, down_bias = (tape.index_rows(bias(), numbers) for bias in biases) if biases else (None, None)
    h = grouped_linear(run, op, picked, matrices, offsets, up_bias)
    h = GATES[op.gating](run, op, h)
    down_matrices = down()
    h = grouped_linear(run, op, h, down_matrices, offsets, down_bias)
    weighted = tape.mul(h, tape.unsqueeze(sample_weights, -1))
    back = tape.index_rows(weighted, tape.indices_from("empty_like", order))
    total = tape.reduce("sum", tape.view(back, hidden.shape[0], k, x.shape[-1]), 1, keepdim=False)
    result = tape.to(total, x.dtype)
    # Names of the function, until it returns; merged weights are in torch's parametrize.cached() as long.
    tape.record("locals", [picked, h, back, matrices, down_matrices], [])
    return tape.view(result, *x.shape)


def _trains(run: Lowering, op: ExpertMlps) -> bool:
    return any(parameter.requires_grad for parameter in run.parameters_of(op))


def _experts_in_turn(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor) -> Tensor:
    """A loop over experts (transformers 4.48 models/mixtral), rows spread evenly over them.

    A turn's tensors have 1 / turns of all rows; sizes being polynomials with whole coefficients, they are written
    as all rows with 1 / turns of the width. More than `MOST_TURNS` experts, half as many with adapters, whose turns are
    three times as long, count as so many that are larger.
    """
    tape, width = run.tape, x.shape[-1]
    gate_up, down = op.parameters
    inner = run.parameter(down).shape[1 if op.transposed else 2]
    assert isinstance(width, int)
    assert isinstance(inner, int)
    lora = run.execution.lora
    most = MOST_TURNS // 2 if lora is not None and lora.wraps(gate_up) else MOST_TURNS
    turns = max(n for n in range(1, most + 1) if not op.num_experts % n + width % n + inner % n)
    hidden = tape.reshape(x, -1, width)
    rows = hidden.shape[0] * op.experts_per_token
    summed = tape.new(hidden.shape, hidden.dtype, op="zeros")
    own = tape.to(tape.reshape(weights, -1, 1), hidden.dtype)
    for _ in range(turns):
        picked = tape.new((rows, width // turns), hidden.dtype, requires_grad=hidden.requires_grad, op="index")
        tape.record("index", [hidden], [picked])
        first = [_layer_of_turn(run, op, gate_up, picked, inner, turns) for _ in range(op.branches)]
        h = _gated(run, op, *first) if op.branches == 2 else apply_activation(tape, op.function, *first)
        out = tape.mul(_layer_of_turn(run, op, down, h, width, turns), own)
        joined = replace(summed, requires_grad=out.requires_grad)
        tape.record("add_", [summed, out], [joined], [(out, "source")])
        summed = joined
    return tape.view(summed, *x.shape)


def _layer_of_turn(run: Lowering, op: ExpertMlps, base: Parameter, x: Tensor, width: int, turns: int) -> Tensor:
    """One linear layer of a turn's experts, with the adapters beside it."""
    inputs = x.shape[-1]
    assert isinstance(inputs, int)
    one_matrix = 2 * inputs * turns * width if run.execution.quantized_compute is not None else 0
    result = run.tape.frozen_product(x, run.parameter(base), width // turns, one_matrix)
    return with_adapters_of_turn(run, base, x, result, (op.num_experts, turns))


@EXPERTS.named("flat")
def _experts_flat(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *_: Tensor) -> Tensor:
    """DBRX: one expert after another on its own rows, seen as slices of flat matrices."""
    tape, count = run.tape, op.num_experts
    w1, v1, w2 = (tape.view(w, count, w.shape[0] // count, w.shape[1]) for w in run.parameters_of(op))
    hidden = tape.reshape(x, -1, x.shape[-1])
    picked, places = _rows_of_experts(run, op, hidden)
    gate = tape.expert_mm(picked, tape.transpose(w1, 1, 2))
    up = tape.expert_mm(picked, tape.transpose(v1, 1, 2))
    h = _gated(run, op, gate, up)
    return tape.view(_weighted_rows(run, tape.expert_mm(h, w2), weights, places, hidden), *x.shape)


@EXPERTS.named("loop")
def _experts_loop(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, *_: Tensor) -> Tensor:
    """Step 3.7: one expert after another on its own rows, gate and up in one product."""
    tape = run.tape
    gate_up, down = (tape.transpose(weight, 1, 2) for weight in run.parameters_of(op))
    hidden = tape.reshape(x, -1, x.shape[-1])
    picked, places = _rows_of_experts(run, op, hidden)
    h = GATES[op.gating](run, op, tape.expert_mm(picked, gate_up))
    return tape.view(_weighted_rows(run, tape.expert_mm(h, down), weights, places, hidden), *x.shape)


@EXPERTS.named("everywhere")
def _experts_everywhere(run: Lowering, op: ExpertMlps, x: Tensor, scores: Tensor, *_: Tensor) -> Tensor:
    """Llama 4: every expert on all tokens, each token times its score for that expert."""
    tape, count = run.tape, op.num_experts
    gate_up, down = run.parameters_of(op)
    hidden = tape.reshape(x, -1, x.shape[-1])
    rows = tape.new((hidden.shape[0] * count, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="repeat")
    tape.record("repeat", [hidden], [rows])
    rows = tape.mul(rows, tape.reshape(tape.transpose(scores, 0, 1), -1, 1))
    h = tape.matmul(tape.view(rows, count, hidden.shape[0], x.shape[-1]), gate_up)
    gate, up = tape.chunk(h, 2)
    out = tape.matmul(_gated(run, op, gate, up), down)
    return tape.view(tape.reduce("sum", out, 0, keepdim=False), *x.shape)


@EXPERTS.named("sorted")
def _experts_sorted(run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor) -> Tensor:
    """JetMoE's MLP: rows sorted by expert, gate and up in one product."""
    tape = run.tape
    first, last = (tape.transpose(weight, 1, 2) for weight in run.parameters_of(op))
    rows = tape.index_rows(tape.reshape(x, -1, x.shape[-1]), tokens)
    gate, up = tape.chunk(tape.expert_mm(rows, first), 2)
    h = tape.expert_mm(_gated(run, op, gate, up), last)
    return _summed_by_token(run, op, h, weights, tokens)


@EXPERTS.named("queries")
def _experts_queries(
    run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor
) -> Tensor:
    """JetMoE's queries: a token's experts side by side."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    rows = tape.index_rows(tape.reshape(x, -1, x.shape[-1]), tokens)
    rows = tape.expert_mm(rows, tape.transpose(weight, 1, 2))
    return tape.view(tape.index_add_(rows, order, rows), *x.shape[:2], -1)


@EXPERTS.named("outputs")
def _experts_outputs(
    run: Lowering, op: ExpertMlps, x: Tensor, weights: Tensor, order: Tensor, tokens: Tensor
) -> Tensor:
    """JetMoE's attention output: each expert's own queries' results, weighted and summed."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    rows = tape.index_rows(tape.reshape(x, -1, weight.shape[-1]), order)
    return _summed_by_token(run, op, tape.expert_mm(rows, tape.transpose(weight, 1, 2)), weights, tokens)


def _summed_by_token(run: Lowering, op: ExpertMlps, h: Tensor, weights: Tensor, tokens: Tensor) -> Tensor:
    tape = run.tape
    h = tape.mul(h, tape.unsqueeze(weights, -1))
    total = tape.new((run.batch * run.sequence, h.shape[-1]), h.dtype, op="zeros")
    return tape.view(tape.index_add_(h, tokens, total), run.batch, run.sequence, h.shape[-1])


@record(kw_only=True, eq=False)
class SortedRouter(Operation):
    num_experts: int
    experts_per_token: int


@lowering(SortedRouter)
def sorted_router(run: Lowering, op: SortedRouter, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """JetMoE: the best logits in fp32, a softmax over them, all choices sorted by expert."""
    tape = run.tape
    logits = tape.to(tape.linear(tape.reshape(x, -1, x.shape[-1]), *run.parameters_of(op)), "fp32")
    best, indices = tape.topk(logits, op.experts_per_token)
    weights = tape.to(tape.softmax(best), x.dtype)
    order = tape.sorted_by_expert(tape.reshape(indices, -1), op.num_experts)[1]
    return tape.index_rows(tape.reshape(weights, -1), order), order, tape.indices_from("div", order)


@record(kw_only=True, eq=False)
class RepeatHeads(Operation):
    times: int


@lowering(RepeatHeads)
def repeat_heads(run: Lowering, op: RepeatHeads, x: Tensor) -> Tensor:
    """`x.repeat(1, times, 1, 1)`, a copy."""
    tape, times = run.tape, op.times
    out = tape.new((x.shape[0], x.shape[1] * times, *x.shape[2:]), x.dtype, requires_grad=x.requires_grad, op="repeat")
    tape.record("repeat", [x], [out])
    return out


def _rows_of_experts(run: Lowering, op: ExpertMlps, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Every token once for each of its experts, and the places in (experts per token, tokens) of `torch.where`."""
    tape = run.tape
    rows = hidden.shape[0] * op.experts_per_token
    places = tape.select(tape.new((rows, 2), "int64", op="nonzero"), 1)
    return tape.index_rows(hidden, places), places


def _weighted_rows(run: Lowering, h: Tensor, weights: Tensor, places: Tensor, hidden: Tensor) -> Tensor:
    """Rows times their weights, summed by token."""
    tape = run.tape
    own = tape.index_rows(tape.reshape(weights, -1), places)
    return tape.index_add_(tape.to(tape.mul(h, tape.unsqueeze(own, -1)), hidden.dtype), places, hidden)


def grouped_linear(
    run: Lowering, op: ExpertMlps, x: Tensor, weight: Tensor, offsets: Tensor, bias: Tensor | None
) -> Tensor:
    matrices = weight if op.transposed else run.tape.transpose(weight, 1, 2)
    out = run.tape.grouped_mm(x, matrices, offsets)
    return out if bias is None else run.tape.add_(out, bias)


def _gated(run: Lowering, op: ExpertMlps, gate: Tensor, up: Tensor) -> Tensor:
    """act(gate)·up, which kernel libraries replace as in any MLP."""
    (result,) = run.lowered(ExpertGate(module=op.module, function=op.function), gate, up)
    return result


@GATES.named("none")
def _gate_none(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """Experts of two products (Nemotron H)."""
    return apply_activation(run.tape, op.function, h)


@GATES.named("halves")
def _gate_halves(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """act(gate)·up over the two halves of one projection."""
    return _gated(run, op, *run.tape.chunk(h, 2))


@GATES.named("widened_halves")
def _gate_widened_halves(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    return widened_gate(run, WidenedGate(function=op.function), *run.tape.chunk(h, 2))


@GATES.named("clamped_halves_glu")
def _gate_clamped_halves_glu(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    return clamped_glu(run, ClampedGlu(), h)


class ClampedGlu(Operation):
    __slots__ = ()


@lowering(ClampedGlu)
def clamped_glu(run: Lowering, op: ClampedGlu, h: Tensor) -> Tensor:
    """(up + 1)·gate·sigmoid(gate·alpha) over two halves, both clamped (MiniMax M3)."""
    tape = run.tape
    gate, up = (tape.unary("clamp", half) for half in tape.chunk(h, 2))
    glu = tape.mul(gate, tape.unary("sigmoid", tape.scale(gate)))
    return tape.mul(tape.scale(up, "add_scalar"), glu)


@GATES.named("limited")
def _gate_limited(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """act(gate)·up, both clamped first."""
    gate, up = (run.tape.unary("clamp", half) for half in run.tape.chunk(h, 2))
    return run.tape.mul(apply_activation(run.tape, op.function, gate), up)


@GATES.named("clamped_halves")
def _gate_clamped_halves(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """As halves, both factors clamped (Step 3.7)."""
    gate, up = run.tape.chunk(h, 2)
    gate = run.tape.unary("clamp", apply_activation(run.tape, op.function, gate))
    return run.tape.mul(gate, run.tape.unary("clamp", up))


@GATES.named("clamped")
def _gate_clamped(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """gpt-oss: (up + 1)·gate·sigmoid(gate·alpha), gate and up interleaved and clamped."""
    tape = run.tape
    gate = tape.unary("clamp", tape.step(h, -1, 2))
    up = tape.unary("clamp", tape.step(h, -1, 2))
    glu = tape.mul(gate, tape.unary("sigmoid", tape.scale(gate)))
    return tape.mul(tape.scale(up, "add_scalar"), glu)


class Jitter(Operation):
    __slots__ = ()


@lowering(Jitter)
def jitter(run: Lowering, op: Jitter, x: Tensor) -> Tensor:
    """Mixtral in training: hidden states times uniform noise, in place."""
    if not run.execution.dropout:
        return x
    return run.tape.mul_(x, run.tape.like(x, requires_grad=False, op="uniform_"))


class Clip(Operation):
    __slots__ = ()


@lowering(Clip)
def clip(run: Lowering, op: Clip, x: Tensor) -> Tensor:
    return run.tape.clamp_(x)
