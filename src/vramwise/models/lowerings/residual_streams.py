"""Qwen 4's residual streams and n-gram embeddings as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.lowering import Lowering, lowering


@lowering("repeat_streams")
def repeat_streams(run: Lowering, op: Op, x: Tensor) -> Tensor:
    shape = (*x.shape[:-1], op.outputs[0].width)
    out = run.tape.new(shape, x.dtype, requires_grad=x.requires_grad, op="repeat")
    run.tape.record("repeat", [x], [out])
    return out


@lowering("stream_norm")
def stream_norm(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """Root-mean-square norm of every stream, one weight for the whole, in fp32."""
    tape, (weight,) = run.tape, run.parameters_of(op)
    rows = _apart(run, op, tape.to(x, "fp32"))
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", rows)), "add_scalar")
    normed = tape.reshape(tape.mul(rows, tape.unary("rsqrt", variance)), *x.shape)
    return tape.to(tape.mul(normed, tape.scale(tape.to(weight, "fp32"), "add_scalar")), x.dtype)


def _apart(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.reshape(x, *x.shape[:-1], op.settings["streams"], -1)


@lowering("mixed_streams")
def mixed_streams(run: Lowering, op: Op, weights: Tensor, x: Tensor) -> Tensor:
    """The mean of all streams, each element with a weight."""
    product = run.tape.mul(_apart(run, op, weights), _apart(run, op, x))
    return run.tape.reduce("mean", product, -2, keepdim=False)


@lowering("injected")
def injected(run: Lowering, op: Op, x: Tensor, h: Tensor, weights: Tensor) -> Tensor:
    """A layer's result added to every stream with a weight of its own."""
    tape = run.tape
    spread = tape.mul(tape.unsqueeze(h, -2), tape.unsqueeze(weights, -1))
    return tape.add(x, tape.reshape(spread, *x.shape))


@lowering("hashed_ngrams")
def hashed_ngrams(run: Lowering, op: Op) -> Tensor:
    """Rows for the hashes of each token's n-grams; the ids of the tokens before a sequence are cut off."""
    tape, (weight,), heads = run.tape, run.parameters_of(op), op.settings["heads"]
    ids = tape.new((run.batch, run.sequence + op.settings["context"], heads), "int64", op="cat")
    rows = tape.embedding(tape.narrow(ids, 1, run.sequence), weight)
    return tape.reshape(rows, *rows.shape[:2], -1)


@lowering("stream_gate")
def stream_gate(run: Lowering, op: Op, key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """σ(±√|key · query|) for each stream, times the value."""
    tape = run.tape
    product = tape.mul(_apart(run, op, key), _apart(run, op, query))
    gate = tape.scale(tape.reduce("sum", product))
    root = tape.unary("sqrt", tape.unary("clamp", tape.unary("abs", gate)))
    sign = tape.like(gate, requires_grad=gate.requires_grad, op="sign")
    tape.record("sign", [gate], [sign])
    gate = tape.unary("sigmoid", tape.mul(root, sign))
    return tape.reshape(tape.mul(gate, tape.unsqueeze(value, -2)), *query.shape)


@lowering("dilated_conv1d")
def dilated_conv1d(run: Lowering, op: Op, x: Tensor) -> Tensor:
    """Each channel over positions that lie `dilation` apart, activated."""
    tape, (weight,), dilation = run.tape, run.parameters_of(op), op.settings["dilation"]
    x = tape.pad(tape.transpose(x, 1, 2), -1, dilation * (weight.shape[-1] - 1))
    return tape.transpose(tape.unary("silu", tape.depthwise_conv1d(x, weight, None, 0, dilation)), 1, 2)


@lowering("block_index")
def block_index(run: Lowering, op: Op, x: Tensor) -> tuple[()]:
    """Only indices of blocks come of it, so nothing of it outlives the forward pass."""
    run.tape.linear(run.tape.detached(x), run.tape.detached(run.parameters_of(op)[0]))
    return ()
