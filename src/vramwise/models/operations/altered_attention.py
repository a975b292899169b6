"""Attention that is more than softmax(q·kᵀ)·v in transformers 5.23: DiffLlama, Granite with sinks, Doge, Beam."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import (
    AnyAttention,
    attention_dropout,
    eager_attention,
    repeat_kv,
    sdpa_attention,
)
from vramwise.models.operations.latent import Cached, cached, flash_with_sinks
from vramwise.records import record


class DifferentialAttention(AnyAttention):
    __slots__ = ()


@lowering(DifferentialAttention)
def differential_attention(run: Lowering, op: DifferentialAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`DiffLlamaAttention`: attention over each half of the values; the second half of heads is subtracted."""
    tape = run.tape
    k, v = cached(run, Cached(), k, v)
    attend = eager_attention if run.execution.attention == "eager" else sdpa_attention
    groups = k.shape[1]
    halves = [tape.clone_contiguous(tape.stack([half, half], 1)) for half in tape.chunk(v, 2, 1)]
    mixed = tape.cat([attend(run, op, q, k, tape.view(x, x.shape[0], groups, *x.shape[3:])) for x in halves])
    first, second = tape.chunk(mixed, 2, 2)
    q1, k1, q2, k2 = run.parameters_of(op)
    factors = [tape.to(_exponential(run, a, b), q.dtype) for a, b in ((q1, k1), (q2, k2))]
    factor = tape.scale(tape.add(*factors), "add_scalar")
    out = tape.scale(_rms_kernel(run, tape.add(first, tape.mul(factor, second))))
    return tape.reshape(out, *out.shape[:2], -1)


def _exponential(run: Lowering, a: Tensor, b: Tensor) -> Tensor:
    tape = run.tape
    return tape.unary("exp", tape.reduce("sum", tape.to(tape.mul(a, b), "fp32"), keepdim=False))


def _rms_kernel(run: Lowering, x: Tensor) -> Tensor:
    """`F.rms_norm` without a weight: one kernel on CUDA, composed of others in fp32 on CPU."""
    tape = run.tape
    x = tape.autocast_high("_fused_rms_norm", x)
    if tape.device == "cuda":
        out = tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="_fused_rms_norm")
        rstd = tape.new((*x.shape[:-1], 1), "fp32", op="_fused_rms_norm")
        tape.record("_fused_rms_norm", [x], [out, rstd], [(x, "input"), (rstd, "rstd")])
        return out
    wide = tape.to(x, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", wide)), "add_scalar")
    return tape.to(tape.mul(wide, tape.unary("rsqrt", variance)), x.dtype)


class LseSinkAttention(AnyAttention):
    __slots__ = ()


@lowering(LseSinkAttention)
def lse_sink_attention(run: Lowering, op: LseSinkAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`GraniteSWAAttention`: the result times sigmoid(log-sum-exp of the scores − the head's sink)."""
    tape = run.tape
    k, v = cached(run, Cached(), k, v)
    if run.execution.sdpa_backend == "flash":
        return flash_with_sinks(run, op, q, k, v)
    k, v = repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    mask = tape.new((run.batch, 1, run.sequence, run.sequence), run.hidden_dtype, op="mask")
    scores = tape.add(scores, mask)
    (sinks,) = run.parameters_of(op)
    excess = tape.add(tape.logsumexp(scores), tape.view(sinks, 1, -1, 1))
    share = tape.unary("sigmoid", tape.to(excess, "fp32"))
    weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), attention_dropout(run, op.dropout))
    mixed = tape.matmul(weights, v)
    mixed = tape.mul(mixed, tape.to(tape.unsqueeze(share, -1), mixed.dtype))
    return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), run.batch, run.sequence, -1)


class Fp32SinkAttention(AnyAttention):
    __slots__ = ()


@lowering(Fp32SinkAttention)
def fp32_sink_attention(run: Lowering, op: Fp32SinkAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`FlintAttention`: fp32 scores outside of autocast, and one column more of them, the head's sink."""
    tape = run.tape
    k, v = cached(run, Cached(), k, v)
    if run.execution.sdpa_backend == "flash":
        return flash_with_sinks(run, op, q, k, v)
    k, v = repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul_plain(tape.to(q, "fp32"), tape.transpose(tape.to(k, "fp32"), 2, 3)))
    mask = tape.new((run.batch, 1, run.sequence, run.sequence), run.hidden_dtype, op="mask")
    (sinks,) = run.parameters_of(op)
    column = tape.expand(tape.reshape(sinks, 1, -1, 1, 1), run.batch, -1, run.sequence, -1)
    shares = tape.softmax(tape.cat([tape.add(scores, mask), column]))
    weights = tape.to(tape.narrow(shares, -1, k.shape[2]), v.dtype)
    mixed = tape.matmul(tape.dropout(weights, attention_dropout(run, op.dropout)), v)
    return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), run.batch, run.sequence, -1)


class RowsOfHeads(Operation):
    __slots__ = ()


@lowering(RowsOfHeads)
def rows_of_heads(run: Lowering, op: RowsOfHeads, x: Tensor) -> Tensor:
    """(batch, heads, tokens, d) -> (batch, tokens, heads · d)."""
    return run.tape.reshape(run.tape.transpose(x, 1, 2), x.shape[0], x.shape[2], -1)


@record(kw_only=True, eq=False)
class DynamicMaskAttention(AnyAttention):
    chunk_size: int

    @property
    def has_float_mask(self) -> bool:
        return True


@lowering(DynamicMaskAttention)
def dynamic_mask_attention(
    run: Lowering, op: DynamicMaskAttention, q: Tensor, k: Tensor, v: Tensor, time_step: Tensor
) -> Tensor:
    """`DogeAttention`: a factor for every key made from its value, as a mask of floats that has a gradient."""
    tape, times = run.tape, op.num_heads // op.num_key_value_heads
    mask = tape.repeat_interleave_heads(_dynamic_mask(run, op, time_step), times)
    eager, dropout = run.execution.attention == "eager", attention_dropout(run, op.dropout)
    if not eager and times > 1 and run.sequence == 1:
        # `pack_gqa`: the heads of a group stand in for tokens.
        q, mask = (tape.reshape(x, run.batch, k.shape[1], times, x.shape[-1]) for x in (q, mask))
    else:
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
    if eager:
        scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), mask)
        weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), dropout)
        mixed = tape.matmul(weights, v)
    else:
        mixed = tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=run.execution.sdpa_backend)
        mixed = tape.reshape(mixed, run.batch, -1, run.sequence, v.shape[-1])
    return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), run.batch, run.sequence, -1)


def _dynamic_mask(run: Lowering, op: DynamicMaskAttention, time_step: Tensor) -> Tensor:
    """`prepare_dynamic_mask`: causal, and only the best keys of many."""
    tape, length = run.tape, op.chunk_size
    (decay,) = run.parameters_of(op)
    factors = tape.unary("exp", tape.mul(decay, tape.unary("softplus", time_step)))
    mask = tape.unsqueeze(tape.transpose(factors, 1, 2), 2)
    mask = tape.expand(mask, -1, -1, run.sequence, -1)
    outside = tape.new((run.batch, 1, run.sequence, run.sequence), "bool", op="ne")
    mask = tape.masked_fill(mask, outside)
    if length in run.windows_reached:
        # Only the indices are used, so the node goes with the values and keeps nothing.
        tape.topk(tape.detached(mask), length)
        mask = tape.masked_fill(mask, tape.new(mask.shape, "bool", op="eq"))
    return mask


@record(kw_only=True, eq=False)
class ScaleByLogPosition(Operation):
    table: str


@lowering(ScaleByLogPosition)
def scale_by_log_position(run: Lowering, op: ScaleByLogPosition, q: Tensor) -> Tensor:
    """Beam: queries times a factor for each position in fp32, made once a kind of layer, cast back."""
    key = f"log position/{op.table}"
    if key not in run.tables:
        run.tables[key] = (run.tape.new((1, 1, run.sequence, 1), "fp32", op="exp"),)
    return run.tape.to(run.tape.mul(run.tape.to(q, "fp32"), run.tables[key][0]), q.dtype)
