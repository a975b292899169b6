"""DeepSeek V4 in transformers 5.23: hyper-connections, compressed tokens, rotary positions on a head's last columns."""

from __future__ import annotations

from vramwise.models.autograd.size import product, whole_chunks_of
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyRotary, rotary_table, turned_neighbours
from vramwise.models.operations.norms import unweighted
from vramwise.records import record

# -- hyper-connections ---------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class CopyStreams(Operation):
    copies: int


@lowering(CopyStreams)
def copy_streams(run: Lowering, op: CopyStreams, x: Tensor) -> Tensor:
    tape = run.tape
    return tape.contiguous(tape.expand(tape.unsqueeze(x, 2), *x.shape[:2], op.copies, x.shape[-1]))


def _normed_streams(run: Lowering, x: Tensor) -> Tensor:
    """All streams of a token as one fp32 vector over its root mean square."""
    flat = run.tape.to(run.tape.view(x, *x.shape[:2], -1), "fp32")
    return unweighted(run, flat)


@record(kw_only=True, eq=False)
class HyperConnection(Operation):
    iterations: int


@lowering(HyperConnection)
def hyper_connection(run: Lowering, op: HyperConnection, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of the result, a doubly stochastic mix of the streams (Sinkhorn), and the streams' weighted sum."""
    tape, m = run.tape, x.shape[2]
    fn, base, scale = run.parameters_of(op)
    scores = tape.linear(_normed_streams(run, x), tape.to(fn, "fp32"))
    pieces = tape.split(scores, [m, m, m * m])
    biases = tape.split(base, [m, m, m * m])
    factors = [tape.select(scale, 0) for _ in range(3)]
    pre, post = (tape.unary("sigmoid", tape.add(tape.mul(pieces[i], factors[i]), biases[i])) for i in range(2))
    pre, post = tape.scale(pre, "add_scalar"), tape.scale(post)
    mix = tape.mul(tape.view(pieces[2], *x.shape[:2], m, m), factors[2])
    mix = tape.scale(tape.softmax(tape.add(mix, tape.view(biases[2], m, m))), "add_scalar")
    for step in range(2 * op.iterations - 1):
        sums = tape.reduce("sum", mix, -1 if step % 2 else -2)
        mix = tape.div(mix, tape.scale(sums, "add_scalar"))
    return post, mix, _weighted_sum(run, pre, x)


def _weighted_sum(run: Lowering, weights: Tensor, x: Tensor) -> Tensor:
    tape = run.tape
    return tape.to(tape.reduce("sum", tape.mul(tape.unsqueeze(weights, -1), x), 2, keepdim=False), x.dtype)


class HyperMerge(Operation):
    __slots__ = ()


@lowering(HyperMerge)
def hyper_merge(run: Lowering, op: HyperMerge, post: Tensor, mix: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The result spread over the streams, plus the streams mixed."""
    tape = run.tape
    spread = tape.mul(tape.unsqueeze(tape.to(post, x.dtype), -1), tape.unsqueeze(y, -2))
    return tape.add(spread, tape.matmul(tape.transpose(tape.to(mix, x.dtype), 2, 3), x))


class HyperHead(Operation):
    __slots__ = ()


@lowering(HyperHead)
def hyper_head(run: Lowering, op: HyperHead, x: Tensor) -> Tensor:
    tape = run.tape
    fn, base, scale = (tape.to(parameter, "fp32") for parameter in run.parameters_of(op))
    scores = tape.mul(tape.linear(_normed_streams(run, x), fn), scale)
    return _weighted_sum(run, tape.scale(tape.unary("sigmoid", tape.add(scores, base)), "add_scalar"), x)


class StreamsMean(Operation):
    __slots__ = ()


@lowering(StreamsMean)
def streams_mean(run: Lowering, op: StreamsMean, x: Tensor) -> Tensor:
    return run.tape.reduce("mean", x, 2, keepdim=False)


# -- attention -----------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class RotaryTail(AnyRotary):
    inverse: bool


@lowering(RotaryTail)
def rotary_tail(run: Lowering, op: RotaryTail, x: Tensor) -> Tensor:
    """The last columns turned in fp32 by tables that every call doubles for itself."""
    cos, sin = rotary_table(run, f"half {op.table}", op.rotary_dim // 2)
    return _turned_tail(run, x, cos, run.tape.unary("neg", sin) if op.inverse else sin)


def _turned_tail(run: Lowering, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    tape, columns = run.tape, 2 * cos.shape[-1]
    cos, sin = (tape.unsqueeze(_each_twice(run, table), 1) for table in (cos, sin))
    passed, tail = tape.split(x, [x.shape[-1] - columns, columns])
    turned = tape.mul(tape.to(turned_neighbours(run, tail), "fp32"), sin)
    return tape.cat([passed, tape.to(tape.add(tape.mul(tape.to(tail, "fp32"), cos), turned), x.dtype)])


def _each_twice(run: Lowering, table: Tensor) -> Tensor:
    wide = run.tape.expand(run.tape.unsqueeze(table, -1), *table.shape, 2)
    return run.tape.reshape(wide, *table.shape[:-1], 2 * table.shape[-1])


@record(kw_only=True, eq=False)
class CompressTokens(Operation):
    rate: int
    chunk_size: int
    overlapping: bool
    rotary_dim: int
    for_index: bool

    @property
    def has_gradients(self) -> bool:
        return not self.for_index


@lowering(CompressTokens)
def compress_tokens(run: Lowering, op: CompressTokens, x: Tensor) -> Tensor:
    """One vector for each whole window: values weighted by a softmax over the window, normed, turned."""
    tape, rate, width = run.tape, op.rate, op.outputs[0].width
    batch, parameters = x.shape[0], run.parameters_of(op)
    empty = rate > 1 and op.chunk_size not in run.windows_reached
    if empty or op.for_index:  # nothing or only indices come of it: nothing outlives the forward pass
        x, parameters = tape.detached(x), [tape.detached(parameter) for parameter in parameters]
    kv_weight, gate_weight, bias, norm = parameters
    kv, gate = (tape.linear(x, weight) for weight in (kv_weight, gate_weight))
    if empty:
        return tape.new((batch, 1, 0, width), kv.dtype, op="zeros")
    count = whole_chunks_of(run.sequence, rate)
    kv, gate = (tape.view(tape.narrow(part, 1, count * rate), batch, count, rate, -1) for part in (kv, gate))
    gate = tape.add(gate, bias)
    if op.overlapping:
        kv, gate = (_with_window_before(run, part, width) for part in (kv, gate))
    weights = tape.to(tape.softmax(gate, "fp32"), kv.dtype)
    total = tape.reduce("sum", tape.mul(kv, weights), 2, keepdim=False)
    h = tape.to(total, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.to(tape.mul(norm, tape.mul(h, tape.unary("rsqrt", variance))), total.dtype)
    columns = op.rotary_dim // 2
    cos, sin = (tape.new((batch, count, columns), h.dtype, op=function) for function in ("cos", "sin"))
    return _turned_tail(run, tape.unsqueeze(h, 1), cos, sin)


def _with_window_before(run: Lowering, x: Tensor, width: int) -> Tensor:
    """The second half of every window's columns, and beside it the first half of the window before."""
    shape = (*x.shape[:2], 2 * x.shape[2], width)
    out = run.tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="new_zeros")
    run.tape.record("copy_", [x], [out])
    return out


@record(kw_only=True, eq=False)
class IndexScores(Aside):
    num_heads: int


@lowering(IndexScores)
def index_scores(run: Lowering, op: IndexScores, x: Tensor, compressed_query: Tensor, keys: Tensor) -> tuple[()]:
    """Scores of compressed tokens; only indices come of them, so nothing of it outlives the forward pass."""
    tape, heads = run.tape, op.num_heads
    query_weight, weight = (tape.detached(parameter) for parameter in run.parameters_of(op))
    q = tape.linear(tape.detached(compressed_query), query_weight)
    q = tape.cat([tape.view(q, *q.shape[:2], heads, -1)])
    weights = tape.to(tape.linear(tape.detached(x), weight), "fp32")
    scores = tape.new((*q.shape[:3], keys.shape[2]), "fp32", op="bmm")
    flops = 2 * product(scores.shape) * q.shape[3]
    tape.record("bmm", [tape.to(q, "fp32"), tape.detached(keys)], [scores], flops=flops)
    tape.reduce("sum", tape.mul(tape.unary("relu", scores), tape.unsqueeze(weights, -1)), 2)
    return ()


class AppendTokens(Operation):
    __slots__ = ()


@lowering(AppendTokens)
def append_tokens(run: Lowering, op: AppendTokens, kv: Tensor, far: Tensor) -> Tensor:
    return run.tape.cat([kv, far], 2)


@record(kw_only=True, eq=False)
class GroupedLinear(Operation):
    groups: int


@lowering(GroupedLinear)
def grouped_linear(run: Lowering, op: GroupedLinear, x: Tensor) -> Tensor:
    """Heads in groups, each group with a product of its own."""
    tape, groups = run.tape, op.groups
    (weight,) = run.parameters_of(op)
    rows = tape.reshape(x, *x.shape[:2], groups, -1)
    rows = tape.transpose(tape.reshape(rows, -1, groups, rows.shape[-1]), 0, 1)
    matrices = tape.transpose(tape.view(weight, groups, -1, rows.shape[-1]), 1, 2)
    out = tape.transpose(tape.mm("bmm", *tape.autocast_low(rows, matrices)), 0, 1)
    return tape.reshape(out, *x.shape[:2], -1)
