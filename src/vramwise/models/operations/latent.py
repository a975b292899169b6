"""Attention paths of DeepSeek (multi-head latent attention) and gpt-oss (sinks) in transformers 5.23."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.models.autograd.size import chunks_of, probe, whole_chunks_of
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import (
    AnyAttention,
    AnyRotary,
    attention_dropout,
    repeat_kv,
    rotary_table,
    sdpa_attention,
)
from vramwise.records import record


class Cached(Operation):
    __slots__ = ()


@lowering(Cached)
def cached(run: Lowering, op: Cached, *tensors: Tensor) -> tuple[Tensor, ...]:
    return run.through_cache(-2, *tensors)


class LatentKey(Operation):
    __slots__ = ()


@lowering(LatentKey)
def latent_key(run: Lowering, op: LatentKey, own: Tensor, *shared: Tensor) -> Tensor:
    """Keys of every head: their own part and the rotary part of all, if any, copied into a new tensor."""
    tape = run.tape
    shape = (*own.shape[:-1], sum(one.shape[-1] for one in (own, *shared)))
    requires_grad = any(one.requires_grad for one in (own, *shared))
    key = tape.new(shape, own.dtype, requires_grad=requires_grad, op="new_empty")
    tape.record("copy_", [own, *(tape.expand(one, -1, own.shape[1], -1, -1) for one in shared)], [key])
    return key


@record(kw_only=True, eq=False)
class LightningIndexer(Aside):
    num_heads: int
    head_dim: int


@lowering(LightningIndexer)
def indexer(run: Lowering, op: LightningIndexer, x: Tensor, compressed_query: Tensor) -> tuple[()]:
    """Scores of every token for every later one, outside of autograd; the indices that it picks are not counted."""
    tape = run.tape
    x, compressed_query = tape.detached(x), tape.detached(compressed_query)
    wq, *others = (tape.detached(parameter) for parameter in run.parameters_of(op))
    q = tape.linear(compressed_query, wq)
    indexer_scores(run, x, tape.view(q, *q.shape[:-1], op.num_heads, op.head_dim), others)
    return ()


def indexer_scores(run: Lowering, x: Tensor, q: Tensor, weights_of: Sequence[Tensor]) -> None:
    """Queries by head against every token's one key, and the sum of the heads' scores."""
    tape = run.tape
    wk, weight, bias, weigh = weights_of
    q = tape.cat([q])
    k = tape.cat([tape.layer_norm(tape.linear(x, wk), weight, bias)])
    key = tape.unsqueeze(tape.to(tape.transpose(k, 1, 2), "fp32"), 1)
    scores = tape.unary("relu", tape.scale(tape.matmul(tape.to(q, "fp32"), key)))
    weights = tape.scale(tape.to(tape.linear(x, weigh), "fp32"))
    tape.scale(tape.matmul(tape.unsqueeze(weights, -2), scores), "add_mask")


@record(kw_only=True, eq=False)
class PooledIndexer(Aside):
    num_heads: int
    head_dim: int
    pool: int


@lowering(PooledIndexer)
def pooled_indexer(run: Lowering, op: PooledIndexer, x: Tensor, compressed_query: Tensor) -> tuple[()]:
    """`Glm5NextTextIndexer`: scores of every whole group of tokens, whose key is a weighed sum of theirs."""
    tape, width = run.tape, op.head_dim
    x, compressed_query = tape.detached(x), tape.detached(compressed_query)
    wq, wk, weight, bias, weigh, places, gate = (tape.detached(parameter) for parameter in run.parameters_of(op))
    q = tape.linear(compressed_query, wq)
    q = tape.view(q, *q.shape[:2], op.num_heads, width)
    k = tape.layer_norm(tape.linear(x, wk), weight, bias)
    packed = tape.cat([k, tape.linear(x, gate), tape.new((*k.shape[:2], 1), k.dtype, op="_to_copy")])
    visible = tape.new((run.batch, run.sequence, run.sequence), "bool", op="bitwise_and")
    groups = chunks_of(run.sequence, op.pool)
    keys, gates = (tape.new((run.batch, groups, op.pool, width), packed.dtype, op="index") for _ in range(2))
    shares = tape.softmax(tape.add(tape.to(gates, "fp32"), tape.to(places, "fp32")), "fp32")
    keys = tape.reduce("sum", tape.mul(tape.to(shares, keys.dtype), keys), 2, keepdim=False)
    keys = tape.narrow(keys, 1, whole_chunks_of(run.sequence, op.pool))
    keys = tape.unsqueeze(tape.to(tape.transpose(keys, 1, 2), "fp32"), 1)
    scores = tape.unary("relu", tape.scale(tape.matmul(tape.to(q, "fp32"), keys)))
    weights = tape.scale(tape.to(tape.linear(x, weigh), "fp32"))
    tape.scale(tape.matmul(tape.unsqueeze(weights, -2), scores), "masked_fill")
    tape.record("locals", [packed, visible], [])
    return ()


@record(kw_only=True, eq=False)
class BlockScores(Aside):
    num_heads: int


@lowering(BlockScores)
def block_scores(run: Lowering, op: BlockScores, x: Tensor) -> tuple[()]:
    """MiniMax M3: scores of every token for every later one; only indices of blocks come of them."""
    tape, heads = run.tape, op.num_heads
    wq, wk, q_norm, k_norm = (tape.detached(parameter) for parameter in run.parameters_of(op))
    q, k = (tape.linear(tape.detached(x), weight) for weight in (wq, wk))
    q = tape.transpose(tape.mul(tape.view(q, *q.shape[:2], heads, -1), q_norm), 1, 2)
    k = tape.transpose(tape.mul(tape.view(k, *k.shape[:2], 1, -1), k_norm), 1, 2)
    tape.matmul(tape.to(q, "fp32"), tape.transpose(tape.to(k, "fp32"), 2, 3))
    return ()


@record(kw_only=True, eq=False)
class RotaryComplex(AnyRotary):
    heads_axis: int = 1


@lowering(RotaryComplex)
def rotary_complex(run: Lowering, op: RotaryComplex, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of neighbours turned as complex numbers in fp32; one complex table of width/2 for all layers."""
    turn = run.tape.unsqueeze(complex_table(run, op.inputs[0].width), op.heads_axis)
    return turned_with_tables(run, q, turn), turned_with_tables(run, k, turn)


def complex_table(run: Lowering, width: int) -> Tensor:
    """The one table of all layers for heads of a width, made once."""
    if "complex" not in run.tables:
        run.tables["complex"] = (run.tape.new((1, run.sequence, width // 2), "complex64", op="mul"),)
    return run.tables["complex"][0]


class Temperature(Operation):
    __slots__ = ()


@lowering(Temperature)
def temperature(run: Lowering, op: Temperature, q: Tensor) -> Tensor:
    """Llama 4: queries times a factor in fp32 that grows with the position, made by each layer for itself."""
    tape = run.tape
    factors = tape.new((1, run.sequence, 1, 1), "fp32", op="add_scalar")
    return tape.to(tape.mul(q, tape.expand(factors, q.shape[0], -1, -1, -1)), q.dtype)


def turned_with_tables(run: Lowering, x: Tensor, turn: Tensor) -> Tensor:
    tape = run.tape
    pairs = tape.reshape(tape.to(x, "fp32"), *x.shape[:-1], -1, 2)
    real = tape.view_as_real(tape.mul(tape.view_as_complex(pairs), turn))
    return tape.to(tape.reshape(real, *x.shape), x.dtype)


class RotaryHalves(AnyRotary):
    __slots__ = ()


@lowering(RotaryHalves)
def rotary_halves(run: Lowering, op: RotaryHalves, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """gpt-oss: the two halves turned apart, with tables of half the head's width."""
    tape = run.tape
    cos, sin = (tape.unsqueeze(table, 1) for table in rotary_table(run, "halves", op.inputs[0].width // 2))
    turned = []
    for x in (q, k):
        first, second = tape.chunk(x, 2)
        left = tape.add(tape.mul(first, cos), tape.mul(second, sin))
        right = tape.add(tape.mul(second, cos), tape.mul(first, sin))
        turned.append(tape.cat([left, right]))
    return turned[0], turned[1]


def flash_with_sinks(run: Lowering, op: AnyAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A kernel with the sinks as one argument more (flash-attn 3's `s_aux`): it keeps what flash-attn does."""
    tape = run.tape
    run.parameters_of(op)
    out = sdpa_attention(run, op, q, k, v)
    out = tape.narrow(out, -1, v.shape[-1]) if probe(out.shape[-1]) != probe(v.shape[-1]) else out
    return tape.reshape(tape.contiguous(out), *out.shape[:2], -1)


@record(kw_only=True, eq=False)
class SinkAttention(AnyAttention):
    """`one_name`: the class binds one name to the scores and to all that becomes of them (MiMo)."""

    one_name: bool = False


@lowering(SinkAttention)
def sink_attention(run: Lowering, op: SinkAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """gpt-oss: one more column of scores, the head's sink, joins the softmax and is dropped after it.

    MiMo's full layers run the same code without a sink.
    """
    tape = run.tape
    k, v = (k, v) if op.latent else cached(run, Cached(), k, v)
    if run.execution.sdpa_backend == "flash" and not op.latent:
        return flash_with_sinks(run, op, q, k, v)
    named = [q, k, v]
    k, v = repeat_kv(run, op, k, v)
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    mask = tape.new((q.shape[0], 1, q.shape[2], k.shape[2]), run.hidden_dtype, op="mask")
    masked = scores = tape.add(scores, mask)
    sinks = run.parameters_of(op)
    if sinks:
        column = tape.expand(tape.reshape(sinks[0], 1, -1, 1, 1), q.shape[0], -1, q.shape[2], -1)
        scores = tape.cat([scores, column])
    scores = tape.add(scores, tape.largest(scores))
    shares = tape.softmax(scores, scores.dtype)
    shares = tape.narrow(shares, -1, k.shape[2]) if sinks else shares
    shares = tape.to(tape.dropout(shares, attention_dropout(run, op.dropout)), v.dtype)
    tape.record("locals", [scores if op.one_name else masked], [])  # `attn_weights`, until it is bound to these
    run.named_in[""].append(shares)  # the layer's frame: `hidden_states, _ = self.self_attn(…)`
    out = tape.contiguous(tape.transpose(tape.matmul(shares, v), 1, 2))
    tape.record("locals", [*named, k, *(() if op.one_name else [scores])], [])  # `combined_logits`, arguments
    return tape.reshape(out, *out.shape[:2], -1)
