"""Qwen 4's residual streams and n-gram embeddings as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Aside, Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


class RepeatStreams(Operation):
    __slots__ = ()


@lowering(RepeatStreams)
def repeat_streams(run: Lowering, op: RepeatStreams, x: Tensor) -> Tensor:
    shape = (*x.shape[:-1], op.outputs[0].width)
    out = run.tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="repeat")
    run.tape.record("repeat", [x], [out])
    return out


@record(kw_only=True, eq=False)
class StreamNorm(Operation):
    is_norm = True

    streams: int


@lowering(StreamNorm)
def stream_norm(run: Lowering, op: StreamNorm, x: Tensor) -> Tensor:
    """Root-mean-square norm of every stream, one weight for the whole, in fp32."""
    tape, (weight,) = run.tape, run.parameters_of(op)
    rows = _apart(run, op, tape.to(x, "fp32"))
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", rows)), "add_scalar")
    normed = tape.reshape(tape.mul(rows, tape.unary("rsqrt", variance)), *x.shape)
    return tape.to(tape.mul(normed, tape.scale(tape.to(weight, "fp32"), "add_scalar")), x.dtype)


def _apart(run: Lowering, op: MixedStreams | StreamGate | StreamNorm, x: Tensor) -> Tensor:
    return run.tape.reshape(x, *x.shape[:-1], op.streams, -1)


@record(kw_only=True, eq=False)
class MixedStreams(Operation):
    streams: int


@lowering(MixedStreams)
def mixed_streams(run: Lowering, op: MixedStreams, weights: Tensor, x: Tensor) -> Tensor:
    """The mean of all streams, each element with a weight."""
    product = run.tape.mul(_apart(run, op, weights), _apart(run, op, x))
    return run.tape.reduce("mean", product, -2, keepdim=False)


class Injected(Operation):
    __slots__ = ()


@lowering(Injected)
def injected(run: Lowering, op: Injected, x: Tensor, h: Tensor, weights: Tensor) -> Tensor:
    """A layer's result added to every stream with a weight of its own."""
    tape = run.tape
    spread = tape.mul(tape.unsqueeze(h, -2), tape.unsqueeze(weights, -1))
    return tape.add(x, tape.reshape(spread, *x.shape))


@record(kw_only=True, eq=False)
class HashedNgrams(Operation):
    heads: int
    context: int


@lowering(HashedNgrams)
def hashed_ngrams(run: Lowering, op: HashedNgrams) -> Tensor:
    """Rows for the hashes of each token's n-grams; the ids of the tokens before a sequence are cut off."""
    tape, (weight,), heads = run.tape, run.parameters_of(op), op.heads
    ids = tape.new((run.batch, run.sequence + op.context, heads), "int64", op="cat")
    rows = tape.embedding(tape.narrow(ids, 1, run.sequence), weight)
    return tape.reshape(rows, *rows.shape[:2], -1)


@record(kw_only=True, eq=False)
class StreamGate(Operation):
    streams: int


@lowering(StreamGate)
def stream_gate(run: Lowering, op: StreamGate, key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """σ(±√|key · query|) for each stream, times the value."""
    tape = run.tape
    product = tape.mul(_apart(run, op, key), _apart(run, op, query))
    gate = tape.scale(tape.reduce("sum", product))
    root = tape.unary("sqrt", tape.unary("clamp", tape.unary("abs", gate)))
    sign = tape.like(gate, requires_grad=gate.requires_grad, op="sign")
    tape.record("sign", [gate], [sign])
    gate = tape.unary("sigmoid", tape.mul(root, sign))
    return tape.reshape(tape.mul(gate, tape.unsqueeze(value, -2)), *query.shape)


@record(kw_only=True, eq=False)
class DilatedConv1d(Operation):
    dilation: int


@lowering(DilatedConv1d)
def dilated_conv1d(run: Lowering, op: DilatedConv1d, x: Tensor) -> Tensor:
    """Each channel over positions that lie `dilation` apart, activated."""
    tape, (weight,), dilation = run.tape, run.parameters_of(op), op.dilation
    x = tape.pad(tape.transpose(x, 1, 2), -1, dilation * (weight.shape[-1] - 1))
    return tape.transpose(tape.unary("silu", tape.depthwise_conv1d(x, weight, None, 0, dilation)), 1, 2)


class BlockIndex(Aside):
    __slots__ = ()


@lowering(BlockIndex)
def block_index(run: Lowering, op: BlockIndex, x: Tensor) -> tuple[()]:
    """Only indices of blocks come of it, so nothing of it outlives the forward pass."""
    run.tape.linear(run.tape.detached(x), run.tape.detached(run.parameters_of(op)[0]))
    return ()
