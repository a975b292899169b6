"""Mamba 2's scan as transformers 5.23 runs it in plain PyTorch: chunks of positions, then their states."""

from __future__ import annotations

from vramwise.models.autograd.size import chunks_of
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class GroupedNorm(Operation):
    """A root-mean-square norm of each group of columns, and a gate."""

    is_norm = True

    num_groups: int


class GatedGroupNorm(GroupedNorm):
    __slots__ = ()


@lowering(GatedGroupNorm)
def gated_group_norm(run: Lowering, op: GatedGroupNorm, x: Tensor, gate: Tensor) -> Tensor:
    """`MambaRMSNormGated`: the product with silu(gate) in fp32, normed in groups."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    groups, dtype = op.num_groups, x.dtype
    h = tape.mul(tape.to(x, "fp32"), tape.unary("silu", tape.to(gate, "fp32")))
    h = tape.view(h, *h.shape[:-1], groups, h.shape[-1] // groups)
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.mul(h, tape.unary("rsqrt", variance))
    return tape.mul(weight, tape.to(tape.view(h, *x.shape), dtype))


class ScaleByVector(Operation):
    __slots__ = ()


@lowering(ScaleByVector)
def scale_by_vector(run: Lowering, op: ScaleByVector, x: Tensor) -> Tensor:
    """Falcon H1: a product with a buffer that has a number for each column."""
    dtype = run.execution.param_dtype
    return run.tape.mul(x, run.tape.new((1, 1, x.shape[-1]), dtype, kind="buffer", op="buffer"))


class GateThenGroupedNorm(GroupedNorm):
    __slots__ = ()


@lowering(GateThenGroupedNorm)
def gate_then_grouped_norm(run: Lowering, op: GateThenGroupedNorm, x: Tensor, gate: Tensor) -> Tensor:
    """`FalconH1RMSNormGated`: silu(gate) in fp32, the norm in groups, the product with the weight in fp32."""
    widened = run.tape.mul(x, run.tape.unary("silu", run.tape.to(gate, "fp32")))
    return run.tape.to(_grouped_norm(run, op, widened), x.dtype)


class GroupedNormThenGate(GroupedNorm):
    __slots__ = ()


@lowering(GroupedNormThenGate)
def grouped_norm_then_gate(run: Lowering, op: GroupedNormThenGate, x: Tensor, gate: Tensor) -> Tensor:
    """The same norm before the product with silu(gate)."""
    normed = _grouped_norm(run, op, x)
    return run.tape.to(run.tape.mul(normed, run.tape.unary("silu", run.tape.to(gate, "fp32"))), x.dtype)


def _grouped_norm(run: Lowering, op: GroupedNorm, x: Tensor) -> Tensor:
    tape, (weight,), groups = run.tape, run.parameters_of(op), op.num_groups
    h = tape.to(x, "fp32")
    h = tape.view(h, *h.shape[:-1], groups, h.shape[-1] // groups)
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.mul(h, tape.unary("rsqrt", variance))
    h = tape.mul(tape.view(weight, groups, -1), h)
    return tape.view(h, *x.shape)


@record(kw_only=True, eq=False)
class ChunkScan(Operation):
    package = "mamba-ssm"

    num_heads: int
    num_groups: int
    chunk_size: int


@lowering(ChunkScan)
def chunk_scan(run: Lowering, op: ChunkScan, x: Tensor, inward: Tensor, outward: Tensor, time_step: Tensor) -> Tensor:
    """(batch, sequence, channels) -> the same; everything inside is fp32 and padded to whole chunks."""
    tape, length = run.tape, op.chunk_size
    heads, groups = op.num_heads, op.num_groups
    bias, a_log, skip = run.parameters_of(op)
    a = tape.unary("neg", tape.unary("exp", tape.to(a_log, "fp32")))
    dt = tape.add(time_step, tape.to(bias, time_step.dtype))
    dt = tape.unary("clamp", tape.unary("softplus", dt))
    x = tape.to(tape.view(x, *x.shape[:2], heads, x.shape[-1] // heads), "fp32")
    b, c = (_for_every_head(run, projected, heads, groups) for projected in (inward, outward))
    skipped = tape.mul(tape.unsqueeze(skip, -1), _padded(run, x, length))
    x = tape.mul(x, tape.to(tape.unsqueeze(dt, -1), "fp32"))
    a = tape.mul(a, tape.to(dt, "fp32"))
    x, a, b, c = (_in_chunks(run, tensor, length) for tensor in (x, a, b, c))
    out, named = _chunks(run, x, tape.permute(a, 0, 3, 1, 2), b, c)
    out = tape.add(tape.reshape(out, out.shape[0], -1, *out.shape[3:]), skipped)
    tape.record("locals", [x, a, b, c, dt, skipped, *named], [])  # names of the function, until it returns
    out = tape.narrow(out, 1, run.sequence)
    return tape.reshape(out, *out.shape[:2], -1)


def _for_every_head(run: Lowering, projected: Tensor, heads: int, groups: int) -> Tensor:
    """B or C of a group repeated for its heads: always a copy."""
    tape = run.tape
    by_group = tape.view(projected, *projected.shape[:2], groups, projected.shape[-1] // groups)
    wide = tape.unsqueeze(tape.to(by_group, "fp32"), 3)
    wide = tape.expand(wide, *wide.shape[:3], heads // groups, wide.shape[-1])
    return tape.reshape(tape.clone_contiguous(wide), *wide.shape[:2], heads, wide.shape[-1])


def _padded(run: Lowering, x: Tensor, length: int) -> Tensor:
    """Zeros after the last position up to a whole chunk; a copy also where there is nothing to add."""
    chunks = chunks_of(run.sequence, length) if length in run.windows_reached else 1
    return run.tape.pad(x, 1, chunks * length - run.sequence)


def _in_chunks(run: Lowering, x: Tensor, length: int) -> Tensor:
    padded = _padded(run, x, length)
    chunks = chunks_of(run.sequence, length) if length in run.windows_reached else 1
    return run.tape.reshape(padded, padded.shape[0], chunks, length, *padded.shape[2:])


def _chunks(run: Lowering, x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """x (b,c,l,h,p), a (b,h,c,l), b and c (b,c,l,h,n): within chunks, between them, and both added.

    Also what names of the class's function refer to until it returns.
    """
    tape = run.tape
    cumulated = tape.cumsum(a)
    decay = tape.unary("exp", _segment_sum(run, a))
    met = tape.einsum("bclhn,bcshn->bclsh", c, b)
    scores = tape.mul(met, tape.permute(decay, 0, 2, 3, 4, 1))
    within = tape.einsum("bclsh,bcshp->bclhp", scores, x)
    last = tape.narrow(cumulated, -1, 1)
    to_end = tape.unary("exp", tape.add(last, cumulated))
    weighted = tape.mul(b, tape.unsqueeze(tape.permute(to_end, 0, 2, 3, 1), -1))
    states = tape.einsum("bclhn,bclhp->bchpn", weighted, x)
    zeros = tape.new((states.shape[0], 1, *states.shape[2:]), states.dtype, op="zeros_like")
    states = tape.cat([zeros, states], 1)
    between = tape.unary("exp", _segment_sum(run, tape.pad(tape.select(cumulated, -1), -1, 1)))
    states = tape.einsum("bzch,bzhpn->bchpn", tape.transpose(between, 1, 3), states)
    states = tape.narrow(states, 1, x.shape[1])
    from_start = tape.unary("exp", cumulated)
    read = tape.einsum("bclhn,bchpn->bclhp", c, states)
    before = tape.mul(read, tape.unsqueeze(tape.permute(from_start, 0, 2, 3, 1), -1))
    named = (cumulated, decay, met, scores, within, to_end, weighted, between, states, from_start, read, before)
    return tape.contiguous(tape.add(within, before)), named


def _segment_sum(run: Lowering, x: Tensor) -> Tensor:
    """Sums over every run of positions: two triangular masks, each kept."""
    tape, length = run.tape, x.shape[-1]
    wide = tape.expand(tape.unsqueeze(x, -1), *x.shape, length)
    below, on_or_below = (tape.new((length, length), "bool", op="bitwise_not") for _ in range(2))
    return tape.masked_fill(tape.cumsum(tape.masked_fill(wide, below), -2), on_or_below)
