"""What only Inkling 2 runs in transformers 5.23: states of blocks read by attention, clipped heads, dynamic taps."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyAttention, attention_dropout, repeat_kv
from vramwise.models.operations.experts import GATES, ExpertMlps
from vramwise.models.operations.mixers import PaddingZeroed, padding_zeroed
from vramwise.models.operations.norms import unweighted
from vramwise.models.operations.routers import ROUTES, Router, route_corrected
from vramwise.records import record


class AppendState(Operation):
    __slots__ = ()


@lowering(AppendState)
def append_state(run: Lowering, op: AppendState, x: Tensor, *states: Tensor) -> Tensor:
    return run.tape.cat([*states, run.tape.unsqueeze(x, -2)], -2)


class ReadStates(Operation):
    __slots__ = ()


@lowering(ReadStates)
def read_states(run: Lowering, op: ReadStates, x: Tensor, states: Tensor) -> tuple[Tensor, ...]:
    """Each position's block states and its own, normed in fp32, averaged by learned queries."""
    tape = run.tape
    (query,) = run.parameters_of(op)
    every = unweighted(run, tape.to(tape.cat([states, tape.unsqueeze(x, -2)], -2), "fp32"))
    queries = tape.view(tape.to(query, "fp32"), -1, x.shape[-1])
    queries = tape.expand(tape.unleafed(queries), *x.shape[:2], -1, -1)
    out = tape.sdpa(queries, every, every, backend=run.execution.sdpa_backend)
    return tuple(tape.select(out, 2) for _ in op.outputs)


class BackTo(Operation):
    __slots__ = ()


@lowering(BackTo)
def back_to(run: Lowering, op: BackTo, x: Tensor) -> Tensor:
    """The cast to the dtype of the stream between layers."""
    return run.tape.to(x, run.hidden_dtype)


class Clipped(Operation):
    __slots__ = ()


@lowering(Clipped)
def clipped(run: Lowering, op: Clipped, x: Tensor) -> Tensor:
    """Heads in fp32, times a scale where there is one, shortened where they are longer than a threshold."""
    tape, wide = run.tape, run.tape.to(x, "fp32")
    for scale in run.parameters_of(op):
        wide = tape.mul(wide, tape.to(scale, "fp32"))
    norm = tape.vector_norm(wide)
    factor = tape.scale(tape.unary("reciprocal", tape.scale(norm, "add_scalar")))
    return tape.to(tape.mul(wide, tape.unary("clamp", factor)), x.dtype)


class UnweightedFp32(Operation):
    __slots__ = ()
    is_norm = True


@lowering(UnweightedFp32)
def unweighted_fp32(run: Lowering, op: UnweightedFp32, x: Tensor) -> Tensor:
    return run.tape.to(unweighted(run, run.tape.to(x, "fp32")), x.dtype)


class BothByPosition(Operation):
    __slots__ = ()


@lowering(BothByPosition)
def both_by_position(run: Lowering, op: BothByPosition, *scaled: Tensor) -> tuple[Tensor, ...]:
    """As `both_by_log_position`, on (batch, sequence, heads, d)."""
    tape = run.tape
    factor = tape.new((1, run.sequence, 1, 1), "fp32", op="add_scalar")
    return tuple(tape.to(tape.mul(tape.to(x, "fp32"), factor), x.dtype) for x in scaled)


@record(kw_only=True, eq=False)
class DynamicConvolution(Operation):
    num_heads: int
    kernel: int


@lowering(DynamicConvolution)
def dynamic_convolution(run: Lowering, op: DynamicConvolution, x: Tensor, source: Tensor) -> Tensor:
    """Taps of each token's own, shared within a head, on top of fixed ones; windows are copied out."""
    tape, heads, kernel = run.tape, op.num_heads, op.kernel
    fixed, weight = run.parameters_of(op)
    batch, sequence, width = x.shape
    own = tape.view(tape.to(tape.linear(source, weight), "fp32"), batch, sequence, heads, 1, kernel)
    taps = tape.add(tape.view(tape.transpose(tape.to(fixed, "fp32"), 0, 1), heads, -1, kernel), own)
    wide = tape.to(x, "fp32")
    padded = tape.pad(tape.transpose(padding_zeroed(run, PaddingZeroed(), wide), 1, 2), -1, kernel - 1)
    shape = (batch, width, sequence, kernel)
    windows = tape.new(shape, "fp32", requires_grad=padded.requires_grad, op="flip")
    tape.record("flip", [padded], [windows])
    windows = tape.reshape(tape.transpose(windows, 1, 2), batch, sequence, heads, -1, kernel)
    h = tape.reshape(tape.reduce("sum", tape.mul(windows, taps), keepdim=False), batch, sequence, width)
    return tape.to(tape.scale(tape.add(h, wide)), x.dtype)


class DistanceSinkAttention(AnyAttention):
    __slots__ = ()


@lowering(DistanceSinkAttention)
def distance_sink_attention(
    run: Lowering, op: DistanceSinkAttention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, sinks: Tensor
) -> Tensor:
    """Scores with a bias by distance, and each token's own sink as one column more of the softmax."""
    tape = run.tape
    k, v = repeat_kv(run, op, k, v)
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    mask = tape.new((run.batch, 1, run.sequence, run.sequence), run.hidden_dtype, op="mask")
    column = tape.unsqueeze(tape.transpose(sinks, 1, 2), -1)
    shares = tape.softmax(tape.to(tape.cat([tape.add(scores, mask), column]), "fp32"))
    weights = tape.to(tape.narrow(shares, -1, run.sequence), q.dtype)
    mixed = tape.matmul(tape.dropout(weights, attention_dropout(run, op.dropout)), v)
    return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), run.batch, run.sequence, -1)


class Fp32SigmoidGate(Operation):
    __slots__ = ()


@lowering(Fp32SigmoidGate)
def fp32_sigmoid_gate(run: Lowering, op: Fp32SigmoidGate, x: Tensor, gate: Tensor) -> Tensor:
    tape = run.tape
    return tape.to(tape.mul(tape.to(x, "fp32"), tape.unary("sigmoid", tape.to(gate, "fp32"))), x.dtype)


@ROUTES.named("fp32_weight")
def _route_fp32_weight(run: Lowering, op: Router, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """As `corrected`, by a weight that is fp32 whatever the model's dtype."""
    return route_corrected(run, op, x, replace(weight, dtype="fp32"))


def _capped(run: Lowering, x: Tensor) -> Tensor:
    return run.tape.scale(run.tape.unary("tanh", run.tape.scale(x)))


@GATES.named("capped_halves")
def _gate_capped_halves(run: Lowering, op: ExpertMlps, h: Tensor) -> Tensor:
    """cap(gate)·sigmoid(gate)·cap(up) in fp32."""
    tape = run.tape
    gate, up = (tape.to(half, "fp32") for half in tape.chunk(h, 2))
    product = tape.mul(_capped(run, gate), tape.unary("sigmoid", gate))
    return tape.to(tape.mul(product, _capped(run, up)), h.dtype)
