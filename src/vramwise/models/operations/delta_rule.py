"""Gated DeltaNet as transformers 5.23 runs it in plain PyTorch, which is what runs without flash-linear-attention.

Within a chunk of positions everything happens at once, by a triangular system; from chunk to chunk goes a state.
Its steps are alike, so that they are recorded once with the chunks as an axis.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, chunks_of, product
from vramwise.models.autograd.tensor import Tensor, is_channels_last, pointwise_strides
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


class Flattened(Operation):
    __slots__ = ()


@lowering(Flattened)
def flattened(run: Lowering, op: Flattened, x: Tensor) -> Tensor:
    """(b, s, h, d) -> (b, s, h·d)."""
    return run.tape.reshape(x, *x.shape[:2], -1)


@record(kw_only=True, eq=False)
class DeltaPieces(Operation):
    key_heads: int
    key_dim: int


@lowering(DeltaPieces)
def delta_pieces(run: Lowering, op: DeltaPieces, joint: Tensor, gates: Tensor) -> tuple[Tensor, ...]:
    """Qwen 3 Next: q, k, v, z and both gates out of products that are laid out by key head."""
    tape, heads, width = run.tape, op.key_heads, op.key_dim
    _, z, value_heads, _ = (value.width for value in op.outputs)
    values, times = z // heads, value_heads // heads
    joint = tape.view(joint, *joint.shape[:2], heads, 2 * width + 2 * values)
    gates = tape.view(gates, *gates.shape[:2], heads, 2 * times)
    *qkv, gate = tape.split(joint, [width, width, values, values])
    qkv[2], gate = (tape.reshape(x, *x.shape[:2], value_heads, -1) for x in (qkv[2], gate))
    beta, decay = (tape.reshape(x, *x.shape[:2], value_heads) for x in tape.split(gates, [times, times]))
    return tape.cat([tape.reshape(x, *x.shape[:2], -1) for x in qkv]), gate, beta, decay


@record(kw_only=True, eq=False)
class GatedHeadNorm(Operation):
    is_norm = True

    function: str = "silu"
    widened: bool = False


@lowering(GatedHeadNorm)
def gated_head_norm(run: Lowering, op: GatedHeadNorm, x: Tensor, gate: Tensor) -> Tensor:
    """Root-mean-square norm of every head, then the product with a function of the gate in fp32.

    `widened`: the weight is applied in fp32 too, before anything is cast back.
    """
    tape, (weight,) = run.tape, run.parameters_of(op)
    rows, gate = (tape.reshape(t, -1, op.parameters[0].shape[0]) for t in (x, gate))
    h = tape.to(rows, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.mul(h, tape.unary("rsqrt", variance))
    h = tape.mul(tape.to(weight, "fp32"), h) if op.widened else tape.mul(weight, tape.to(h, rows.dtype))
    h = tape.to(tape.mul(h, tape.unary(op.function, tape.to(gate, "fp32"))), rows.dtype)
    return tape.reshape(h, *x.shape[:2], -1)


@record(kw_only=True, eq=False)
class GatedDeltaRule(Operation):
    package = "flash-linear-attention"

    key_heads: int
    value_heads: int
    chunk_size: int
    doubled: bool


@lowering(GatedDeltaRule)
def gated_delta_rule(
    run: Lowering, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> Tensor:
    """(b, s, h·d) -> (b, s, h, v); beta and the logarithm of the decay are made here."""
    tape = run.tape
    beta, decay = beta_and_decay(run, op, beta, decay)
    q, k, v = in_heads(run, op, q, k, v)
    dtype, (q, k) = q.dtype, (repeated(run, x, op.value_heads // op.key_heads) for x in (q, k))
    q, k, v, beta, decay = (_contiguous_in(run, tape.transpose(x, 1, 2), "fp32") for x in (q, k, v, beta, decay))
    out = _chunked(run, tape.scale(_unit(run, q)), _unit(run, k), v, beta, decay, op.chunk_size)
    return _contiguous_in(run, tape.transpose(tape.narrow(out, 2, run.sequence), 1, 2), dtype)


def beta_and_decay(run: Lowering, op: GatedDeltaRule, beta: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """What both products make of their outputs: sigmoid(b), up to 2 where it is doubled; −exp(A)·softplus(a + bias)."""
    tape = run.tape
    bias, a_log = run.parameters_of(op)
    beta = tape.unary("sigmoid", beta)
    beta = tape.scale(beta) if op.doubled else beta
    rate = tape.unary("neg", tape.unary("exp", tape.to(a_log, "fp32")))
    return beta, tape.mul(rate, tape.unary("softplus", tape.add(tape.to(decay, "fp32"), bias)))


def in_heads(run: Lowering, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values seen by their heads: (b, s, h·d) -> (b, s, h, d)."""
    heads = (op.key_heads, op.key_heads, op.value_heads)
    return tuple(run.tape.reshape(x, *x.shape[:2], n, -1) for x, n in zip((q, k, v), heads, strict=True))


def repeated(run: Lowering, x: Tensor, times: int) -> Tensor:
    """`x.repeat_interleave(times, dim=2)`: a copy."""
    if times == 1:
        return x
    tape, wide = run.tape, run.tape.unsqueeze(x, 3)
    wide = tape.clone_contiguous(tape.expand(wide, *x.shape[:3], times, x.shape[3]))
    return tape.view(wide, *x.shape[:2], -1, x.shape[3])


def _contiguous_in(run: Lowering, x: Tensor, dtype: str) -> Tensor:
    """`x.to(dtype, memory_format=contiguous_format)`: left as it lies where its dtype is that already."""
    if x.dtype == dtype and not is_channels_last(x):
        return x
    out = run.tape.new(x.shape, dtype, requires_grad=x.requires_grad, op="_to_copy")
    run.tape.record("_to_copy", [x], [out])
    return out


def _unit(run: Lowering, x: Tensor) -> Tensor:
    """x / |x|."""
    tape = run.tape
    squares = tape.scale(tape.reduce("sum", tape.mul(x, x)), "add_scalar")
    return tape.mul(x, tape.unary("rsqrt", squares))


def _chunked(run: Lowering, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, length: int) -> Tensor:
    """Everything within chunks, then the walk over them: (b, h, s, d) -> (b, h, n·c, v)."""
    tape, many = run.tape, length in run.windows_reached
    chunks = chunks_of(run.sequence, length) if many else 1
    q, k, v, beta, decay = (padded_to_chunks(run, x, chunks * length, length) for x in (q, k, v, beta, decay))
    rates = tape.unsqueeze(beta, -1)
    v_beta, k_beta = tape.mul(v, rates), tape.mul(k, rates)
    shape = (*q.shape[:2], chunks, length)
    q, k, k_beta, v_beta = (tape.reshape(x, *shape, x.shape[-1]) for x in (q, k, k_beta, v_beta))
    total = tape.cumsum(tape.reshape(decay, *shape))
    future = tape.new((length, length), "bool", op="triu")
    pairs = tape.add(tape.unsqueeze(total, 4), tape.unsqueeze(total, 3))
    pairs = tape.unary("exp", tape.masked_fill(pairs, future))
    system = tape.mul(tape.matmul(k_beta, tape.transpose(k, -1, -2)), pairs)
    scores = tape.mul(tape.matmul(q, tape.transpose(k, -1, -2)), pairs)
    decayed = tape.mul(k_beta, tape.unsqueeze(tape.unary("exp", total), -1))
    values, keys_read = _solved(run, system, v_beta), _solved(run, system, decayed)
    q = tape.mul(q, tape.unsqueeze(tape.unary("exp", total), -1))
    # Where there is one chunk only, nothing reads the state that it would hand on, and its graph is dropped.
    total, k = (total, k) if many else (tape.detached(total), tape.detached(k))
    rest = tape.unary("exp", tape.add(tape.narrow(total, -1, 1), total))
    k = tape.mul(k, tape.unsqueeze(rest, -1))
    chunk_decay = tape.unary("exp", tape.select(total, -1))
    out = _walk(run, q, k, values, keys_read, scores, chunk_decay, many)
    return tape.reshape(out, *out.shape[:2], -1, out.shape[-1])


def padded_to_chunks(run: Lowering, x: Tensor, positions: Dim, length: int) -> Tensor:
    """Zeros after the last position; where there are none to add, a copy that lies as `x` does."""
    if length not in run.chunks_filled:
        return run.tape.pad(x, 2, positions - run.sequence)
    shape = (*x.shape[:2], positions, *x.shape[3:])
    out = run.tape.new(
        shape, x.dtype, requires_grad=x.requires_grad, strides=pointwise_strides(shape, (x,)), op="clone"
    )
    run.tape.record("clone", [x], [out])
    return out


def _solved(run: Lowering, system: Tensor, right: Tensor) -> Tensor:
    """`torch.linalg.solve_triangular`: column-major; keeps the system and its result.

    Solving is not among the operations that torch's counter counts; the product in its backward pass is.
    """
    *batch, rows, columns = right.shape
    flat = run.tape.new((*batch, columns, rows), right.dtype, requires_grad=True, op="linalg_solve_triangular")
    out = run.tape.transpose(flat, -1, -2)
    run.tape.record(
        "linalg_solve_triangular", [system, right], [out], [(system, "self"), (out, "result")],
        backward_flops=2 * product(system.shape) * columns,
    )  # fmt: skip
    return out


def _walk(
    run: Lowering, q: Tensor, k: Tensor, values: Tensor, keys_read: Tensor, scores: Tensor, decay: Tensor, many: bool
) -> Tensor:
    """From chunk to chunk: new = values − keys·S; out = q·S + scores·new; S = decay·S + kᵀ·new.

    S begins as zeros without a gradient; the last S is not read. Under autocast every product casts its own
    operands, and the fp32 state is kept by the product with the decay alone.
    """
    tape, chunks, later = run.tape, values.shape[2], values.shape[2] - 1
    rows, state = (*values.shape[:2], *values.shape[3:]), (*values.shape[:2], k.shape[-1], values.shape[-1])
    zeros = tape.new(state, "fp32", op="zeros")
    states = tape.new((later, *state), "fp32", requires_grad=True, op="add")
    corrections = tape.new((chunks, *rows), "fp32", requires_grad=True, op="sub")
    by_column = tape.new((*values.shape[:3], *values.shape[:2:-1]), "fp32", requires_grad=True, op="zeros_like")
    out = tape.transpose(by_column, -1, -2)
    low = tape.autocast
    if low is None:
        kept = [zeros, states, scores, corrections] + [q, k] * many
    else:
        # Each of zeros, states and corrections is cast for two products, of which the last chunk drops one.
        dtype = low
        kept = [zeros, tape.new((later - 1, *state), "fp32")] if many else []
        kept += [tape.new((2 * chunks, *state), dtype), tape.new(scores.shape, dtype)]
        kept += [tape.new((chunks + later, *rows), dtype)]
        kept += [tape.new((later, *x.shape[:2], *x.shape[3:]), dtype) for x in (q, k, keys_read)]
    flops = 2 * product(state) * scores.shape[-1] * chunks
    within = 2 * product(scores.shape) * values.shape[-1]
    tape.record(
        "bmm", [q, k, values, keys_read, scores, decay, zeros], [out, states, corrections],
        [(x, "chunks") for x in kept], flops=3 * flops + within,
        backward_flops=2 * within + 2 * 2 * product(state) * scores.shape[-1] * (chunks + 2 * later),
    )  # fmt: skip
    return out
