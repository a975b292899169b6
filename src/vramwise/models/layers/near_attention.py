"""LongT5's encoder attends to a neighbourhood, and in the transient-global kind to means of blocks as well."""

from __future__ import annotations

from typing import Any

from vramwise.models.autograd.size import chunks_of, whole_chunks_of
from vramwise.models.autograd.tensor import Tensor, contiguous_strides
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention, attention_dropout
from vramwise.records import record

_KINDS = {"local": "LocalSelfAttention", "transient-global": "TransientGlobalSelfAttention"}
NEAR_BIAS = "near_bias"
"""The stream of position biases of LongT5's encoder, made by its first layer."""


def near_attention(b: BlockBuilder, x: Value, *, c: Config, index: int) -> Value:
    """Attention to a neighbourhood, and in the transient-global kind to means of blocks."""
    kind = c.text("encoder_attention_type")
    if kind not in _KINDS:
        raise c.error(f"encoder_attention_type: expected {' or '.join(_KINDS)}, got {kind!r:.40}")
    b.part, module = "attention", f"layer.0.{_KINDS[kind]}"
    heads, inner = c.num_attention_heads, c.num_attention_heads * c.size("d_kv")
    sizes: dict[str, Any] = {"chunk_size": c.size("local_radius") + 1, "means_of": c.size("global_block_size")}
    pieces = [b.linear(x, f"{module}.{name}", inner) for name in "qkv"]
    if kind != "local":
        means = b.unary(BlockMeans(means_of=sizes["means_of"]), x, module)
        means = b.rms_norm(means, f"{module}.global_input_layer_norm", style="t5")
        pieces += [b.linear(means, f"{module}.{name}", inner) for name in "kv"]
    if index == 0:
        names = ("relative_attention_bias", "global_relative_attention_bias")
        shape = (c.size("relative_attention_num_buckets"), heads)
        tables = [b.parameter(f"{module}.{n}", "weight", shape) for n in names[: 1 if kind == "local" else 2]]
        bias = b.op(NearBias(**sizes), module, [], [heads], tables)[0]
        b.hand_on(NEAR_BIAS, bias)
    else:
        bias = b.input(NEAR_BIAS, heads)
    mixed = b.op(
        NearAttention(num_heads=heads, dropout=c.number("dropout_rate"), **sizes), module, [*pieces, bias], [inner]
    )[0]
    return b.dropout(b.linear(mixed, f"{module}.o", x.width, shard="row"), c.number("dropout_rate"))


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class NearBias(Operation):
    chunk_size: int
    means_of: int


@lowering(NearBias)
def near_bias(run: Lowering, op: NearBias) -> Tensor:
    """Learned numbers for distances in three blocks, plus a mask; for means, one for every token and block."""
    tape, length = run.tape, op.chunk_size
    table, *side = run.parameters_of(op)
    heads = table.shape[1]
    rows = tape.embedding(tape.new((length, 3 * length), "int64", op="add_"), table)
    near = tape.unsqueeze(tape.unsqueeze(tape.permute(rows, 2, 0, 1), 0), 0)
    blocks = chunks_of(run.source, length)
    bias = tape.add(near, tape.new((run.batch, blocks, 1, length, 3 * length), "fp32", op="where"))
    if not side:
        return bias
    dtype = run.execution.autocast or run.execution.param_dtype
    means = whole_chunks_of(run.source, op.means_of)
    found = tape.embedding(tape.new((run.batch, run.source, means), "int64", op="add_"), side[0])
    found = tape.add(tape.permute(found, 0, 3, 1, 2), tape.new((run.batch, 1, run.source, means), "fp32", op="where"))
    made = tape.new((run.batch, blocks, heads, length, means), dtype, requires_grad=found.requires_grad, op="pad")
    tape.record("constant_pad_nd", [found], [made])
    return tape.cat([tape.to(bias, dtype), made])


@record(kw_only=True, eq=False)
class BlockMeans(Operation):
    means_of: int


@lowering(BlockMeans)
def block_means(run: Lowering, op: BlockMeans, x: Tensor) -> Tensor:
    """Sums over blocks of tokens, as a product with zeros and ones that backward keeps."""
    tape = run.tape
    member = tape.new((run.batch, x.shape[1], whole_chunks_of(x.shape[1], op.means_of)), x.dtype, op="_to_copy")
    return tape.einsum("bnd,bng->bgd", x, member)


@record(kw_only=True, eq=False)
class NearAttention(HeadedAttention):
    dropout: float
    chunk_size: int
    means_of: int


@lowering(NearAttention)
def near_attention_lowered(
    run: Lowering, op: NearAttention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor
) -> Tensor:
    """Scores of a block with three, softmax in fp32, and back to one row a token."""
    tape, heads, length = run.tape, op.num_heads, op.chunk_size
    *side, bias = others
    tokens = q.shape[1]
    q, k, v = (_blocks(run, x, heads, length) for x in (q, k, v))
    k, v = (_three_blocks(run, x) for x in (k, v))
    if side:
        k, v = (_beside(run, x, mean, heads) for x, mean in zip((k, v), side, strict=True))
    scores = tape.add_(tape.einsum("bnqhd,bnkhd->bnhqk", q, k), bias)
    weights = tape.to(tape.softmax(tape.to(scores, "fp32")), scores.dtype)
    weights = tape.to(tape.dropout(weights, attention_dropout(run, op.dropout)), v.dtype)
    mixed = tape.contiguous(tape.einsum("bnhqk,bnkhd->bnqhd", weights, v))
    rows = tape.view(mixed, run.batch, q.shape[1] * length, op.outputs[0].width)
    return tape.narrow(rows, 1, tokens)


def _blocks(run: Lowering, x: Tensor, heads: int, length: int) -> Tensor:
    """(batch, tokens, width) -> (batch, blocks, length, heads, d), zeros behind the last token."""
    tape, (batch, tokens, width) = run.tape, x.shape
    blocks = chunks_of(tokens, length)
    assert isinstance(width, int)
    x = tape.view(x, batch, tokens, heads, width // heads)
    if length not in run.chunks_filled:
        padded = tape.new((batch, blocks * length, *x.shape[2:]), x.dtype, requires_grad=x.requires_grad, op="pad")
        tape.record("constant_pad_nd", [x], [padded])
        x = padded
    shape = (batch, blocks, length, heads, width // heads)
    return tape.as_strided(x, shape, contiguous_strides(shape))


def _three_blocks(run: Lowering, x: Tensor) -> Tensor:
    tape, blocks = run.tape, x.shape[1]
    padded = tape.pad(x, 1, 2)
    return tape.cat([tape.narrow(padded, 1, blocks) for _ in range(3)], 2)


def _beside(run: Lowering, x: Tensor, mean: Tensor, heads: int) -> Tensor:
    """Means of all blocks beside each block's keys or values."""
    tape, (batch, means, width) = run.tape, mean.shape
    assert isinstance(width, int)
    shape = (batch, x.shape[1], means, heads, width // heads)
    repeated = tape.new(shape, mean.dtype, requires_grad=mean.requires_grad, op="repeat")
    tape.record("repeat", [mean], [repeated])
    return tape.cat([x, repeated], 2)
