"""Attention of classes that write it out themselves in transformers 5.23: BLOOM, MPT, GPT-J, GPT-Neo, Falcon."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyRotary, Attention, AttentionStyle, attention_dropout, repeat_kv
from vramwise.records import record

# -- BLOOM ---------------------------------------------------------------------------------------------


BLOOM = AttentionStyle("bloom")


@BLOOM.path("eager")
def _eager_bloom(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`BloomAttention`: scores on top of the ALiBi biases in one product, softmax in fp32."""
    tape = run.tape
    batch, heads, s, _ = q.shape
    q, k, v = (tape.reshape(x, batch * heads, x.shape[2], x.shape[3]) for x in (q, k, v))
    alibi = tape.new((batch * heads, 1, k.shape[1]), run.hidden_dtype, op="alibi")
    unmasked = tape.baddbmm(alibi, q, tape.transpose(k, 1, 2))
    scores = tape.add(tape.view(unmasked, batch, heads, s, k.shape[1]), float_mask(run))
    weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    run.named_in[""].append(weights)
    returned_weights(run, weights)
    mixed = tape.matmul(tape.view(weights, batch * heads, s, k.shape[1]), v)
    run.named_in[op.module] += [unmasked, scores]
    return tape.transpose(tape.view(mixed, batch, heads, s, v.shape[-1]), 1, 2)


def returned_weights(run: Lowering, weights: Tensor) -> None:
    """The block returns them beside the hidden states, and the model's loop names both until the next one returns.

    transformers 5.23, the models' forward of bloom, mpt, gptj, gpt_neo, codegen, falcon: `outputs = block(…)`.
    """
    run.tape.record("returned", [weights], [])


def float_mask(run: Lowering) -> Tensor:
    """The additive mask, in the dtype of the embeddings."""
    return run.tape.new((run.batch, 1, run.sequence, run.sequence), run.hidden_dtype, op="mask")


# -- MPT -----------------------------------------------------------------------------------------------


MPT = AttentionStyle("mpt", ordinary=True)


@MPT.path("eager")
def _eager_mpt(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`MptAttention`: scores plus fp32 ALiBi biases, masked by one bool mask for all layers."""
    tape = run.tape
    k, v = repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    alibi = tape.new((1, q.shape[1], 1, k.shape[2]), "fp32", op="alibi")
    if "mpt" not in run.tables:
        run.tables["mpt"] = (_bool_mask(run),)
    scores = tape.masked_fill(tape.add(scores, alibi), run.tables["mpt"][0])
    weights = tape.to(tape.softmax(scores), v.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    run.named_in[""].append(weights)
    returned_weights(run, weights)
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


# -- GPT-J and GPT-Neo ---------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class RotaryEveryTwo(AnyRotary):
    keeps_fp32: bool


@lowering(RotaryEveryTwo)
def rotary_every_two(run: Lowering, op: RotaryEveryTwo, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """`GPTJAttention`: neighbouring pairs turn, by tables that every layer gathers and widens anew.

    The tables are cast to the keys' dtype unless `keeps_fp32`, which makes the turned heads fp32 (CodeGen).
    """
    tape, width = run.tape, op.rotary_dim
    table = tape.new((1, run.sequence, width), "fp32", op="gather")
    table = table if op.keeps_fp32 else tape.to(table, k.dtype)
    sin, cos = tape.chunk(table, 2)
    names = run.named_in[op.module]
    names += [q, k, table]
    k, q = (_turned_pairs(run, x, width, sin, cos, names) for x in (k, q))
    names += [q, k]
    return q, k


def _turned_pairs(
    run: Lowering, x: Tensor, width: int, sin: Tensor, cos: Tensor, names: list[Tensor]
) -> Tensor:  # fmt: skip
    """x·cos + pairs(x)·sin on the first `width` columns of (batch, sequence, heads, d), joined with the rest.

    `names`: what the attention's frame names, to which the turned columns come.
    """
    tape = run.tape
    turned, passed = tape.narrow(x, -1, width), tape.narrow(x, -1, x.shape[-1] - width)
    sin, cos = (tape.new((1, run.sequence, 1, width), t.dtype, op="repeat_interleave") for t in (sin, cos))
    even, odd = tape.step(turned, -1, 2), tape.step(turned, -1, 2)
    swapped = tape.reshape(tape.stack([tape.unary("neg", odd), even]), *turned.shape)
    turned = tape.add(tape.mul(turned, cos), tape.mul(swapped, sin))
    names.append(turned)
    return tape.cat([turned, passed])


GPTJ = AttentionStyle("gptj", ordinary=True)


@GPTJ.path("eager")
def _eager_gptj(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`GPTJAttention._attn`: q and k are widened to fp32 before their product."""
    q, k = _widened(run, q, k)
    scores = run.tape.scale(_scores(run, q, k))
    return _mixed_by_fp32_scores(run, op, scores, v, q, k)


GPT_NEO = AttentionStyle("gpt_neo", ordinary=True)


@GPT_NEO.path("eager")
def _eager_gpt_neo(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`GPTNeoSelfAttention._attn`: as GPT-J, causal by the layer's own table of every pair of positions."""
    tape, rows = run.tape, op.buffer_rows
    q, k = _widened(run, q, k)
    scores = _scores(run, q, k)
    table = tape.new((1, 1, rows, rows), "bool", kind="registered", op="bias")
    causal = tape.narrow(tape.narrow(table, 2, q.shape[2]), 3, k.shape[2])
    scores = tape.where(causal, scores, tape.new((), scores.dtype, op="tensor"))
    return _mixed_by_fp32_scores(run, op, scores, v, q, k)


def _widened(run: Lowering, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return run.tape.to(q, "fp32"), run.tape.to(k, "fp32")


def _scores(run: Lowering, q: Tensor, k: Tensor) -> Tensor:
    return run.tape.matmul(q, run.tape.transpose(k, 2, 3))


def _mixed_by_fp32_scores(run: Lowering, op: Attention, scores: Tensor, v: Tensor, *named: Tensor) -> Tensor:
    """`named`: what the frame of `_attn` names until it returns, its widened `query` and `key`."""
    tape = run.tape
    weights = tape.to(tape.softmax(tape.add(scores, float_mask(run))), v.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    run.named_in[""].append(weights)
    returned_weights(run, weights)
    mixed = tape.matmul(weights, v)
    tape.record("locals", [*named], [])
    return tape.contiguous(tape.transpose(mixed, 1, 2))


# -- Falcon --------------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class GroupedQkv(Operation):
    num_heads: int
    num_key_value_heads: int
    broadcast: bool
    views: bool = False


@lowering(GroupedQkv)
def grouped_qkv(run: Lowering, op: GroupedQkv, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`FalconAttention._split_heads`: each group's queries, key and value; key and value are copied out.

    With `broadcast`, every query head gets its own copy of its group's key and value; with `views` (InternLM 2)
    key and value stay where they are.
    """
    tape, d, groups = run.tape, op.outputs[0].width, op.num_key_value_heads
    queries = op.num_heads // groups
    qkv = tape.view(fused, *fused.shape[:-1], groups, queries + 2, d)
    q, k, v = (
        tape.narrow(qkv, 3, queries),
        *(tape.narrow(qkv, 3, 1) if op.views else tape.take(qkv, 3) for _ in range(2)),
    )
    if op.broadcast:
        k, v = tape.expand(k, *q.shape), tape.expand(v, *q.shape)
    q, k, v = (tape.reshape(x, *fused.shape[:-1], x.shape[2] * x.shape[3], d) for x in (q, k, v))
    return q, k, v


FALCON = AttentionStyle("falcon")


@FALCON.path("eager")
def _eager_falcon(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """`FalconAttention`: softmax in the dtype of the layer's input; dropout only beside ALiBi."""
    tape, alibi = run.tape, op.alibi
    scores = tape.matmul(q, tape.transpose(k, 2, 3))
    if alibi:
        wide = tape.to(scores, "fp32") if scores.dtype in ("bf16", "fp16") else scores
        bias = tape.new((run.batch, q.shape[1], 1, k.shape[2]), run.hidden_dtype, op="alibi")
        scores = tape.add(wide, bias)
    scores = tape.add(tape.add_(scores, scores), float_mask(run))
    weights = tape.softmax(scores, hidden.dtype)
    if alibi:
        weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    returned_weights(run, weights)
    return tape.transpose(tape.matmul(weights, v), 1, 2)


@FALCON.path("sdpa")
def _sdpa_falcon(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
    """`FalconAttention`: a mask is passed in any case, the biases of ALiBi in it; key heads are not repeated."""
    tape, alibi = run.tape, op.alibi
    mask = _alibi_mask(run, q.shape[1]) if alibi else _bool_mask(run)
    dropout = attention_dropout(run, op.dropout) if alibi else 0.0
    backend = run.execution.sdpa_backend
    return tape.transpose(tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=backend), 1, 2)


def _bool_mask(run: Lowering) -> Tensor:
    return run.tape.new((run.batch, 1, run.sequence, run.sequence), "bool", op="mask")


def _alibi_mask(run: Lowering, heads: Dim) -> Tensor:
    """Biases and mask in one tensor, made once for all layers."""
    if "alibi" not in run.tables:
        shape = (run.batch, heads, run.sequence, run.sequence)
        run.tables["alibi"] = (run.tape.new(shape, run.hidden_dtype, op="masked_fill"),)
    return run.tables["alibi"][0]
