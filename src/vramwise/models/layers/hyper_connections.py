"""Hyper-connections (arXiv 2409.19606): copies of the stream that each half of a layer reads as one and adds to all.

DeepSeek V4 mixes the streams among themselves too, by a matrix whose rows and columns add up to one; HY 4 does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Block, Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.hyper import CopyStreams, HyperConnection, HyperHead, HyperMerge, StreamsMean


def copies(c: Config) -> Block:
    """The embedding as so many streams."""
    b = BlockBuilder("")
    return b.build(hidden=b.unary(CopyStreams(copies=c.size("hc_mult")), b.input("hidden", c.hidden_size)))


def _weights(c: Config, width: int) -> tuple[int, dict[str, tuple[int, ...]]]:
    """The number of streams and the shapes of what weighs them."""
    m = c.size("hc_mult")
    mixes = c.has("hc_sinkhorn_iters")
    count = (2 + m) * m if mixes else 2 * m
    return m, {"fn": (count, m * width), "base": (count,), "scale": (3 if mixes else 2,)}


def connected(b: BlockBuilder, streams: Value, c: Config, module: str) -> tuple[Value, ...]:
    """How a half's result joins the streams, how these mix where they do, and what that half reads."""
    m, shapes = _weights(c, streams.width)
    parameters = [b.parameter(module, name, shape, part="mixer") for name, shape in shapes.items()]
    if not c.has("hc_sinkhorn_iters"):
        return b.op(IndependentConnection(), module, [streams], [m, streams.width], parameters)
    widths = [m, m, streams.width]
    return b.op(HyperConnection(iterations=c.size("hc_sinkhorn_iters")), module, [streams], widths, parameters)


def merged(b: BlockBuilder, ways: Sequence[Value], h: Value, streams: Value) -> Value:
    """The streams with a half's result added, after they are mixed where they are."""
    merge = HyperMerge() if len(ways) == 2 else IndependentMerge()
    return b.op(merge, "", [*ways, h, streams], [streams.width])[0]


def averaged(b: BlockBuilder, c: Config) -> Value:
    """The streams' mean, which GLM 5 Next's head reads."""
    return b.unary(StreamsMean(), b.input("hidden", c.hidden_size))


def joined(b: BlockBuilder, c: Config) -> Value:
    """The streams' weighed sum, which the head reads."""
    m, head = c.size("hc_mult"), HyperHead() if c.has("hc_sinkhorn_iters") else IndependentHead()
    shapes = {"hc_fn": (m, m * c.hidden_size), "hc_base": (m,), "hc_scale": (1,)}
    parameters = [b.parameter("model.hc_head", name, shape, part="mixer") for name, shape in shapes.items()]
    return b.unary(head, b.input("hidden", c.hidden_size), "model.hc_head", parameters)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------


@contextmanager
def _outside_autocast(run: Lowering) -> Iterator[None]:
    autocast, run.tape.autocast = run.tape.autocast, None
    try:
        yield
    finally:
        run.tape.autocast = autocast


def _scores(run: Lowering, x: Tensor, weight: Tensor) -> Tensor:
    """A product of all of a token's streams, over their root mean square."""
    tape = run.tape
    flat = tape.to(tape.view(x, *x.shape[:2], -1), "fp32")
    scores = tape.linear(flat, tape.to(weight, "fp32"))
    mean = tape.scale(tape.reduce("mean", tape.unary("pow", flat)), "add_scalar")
    return tape.mul(scores, tape.unary("rsqrt", mean))


def _sum_of(run: Lowering, x: Tensor, weights: Tensor) -> Tensor:
    return run.tape.reduce("sum", run.tape.mul(run.tape.unsqueeze(weights, -1), x), 2, keepdim=False)


class IndependentConnection(Operation):
    __slots__ = ()


@lowering(IndependentConnection)
def independent_connection(run: Lowering, op: IndependentConnection, x: Tensor) -> tuple[Tensor, Tensor]:
    """Weights of the result for every stream, and the streams' weighed sum."""
    tape, m = run.tape, x.shape[2]
    fn, base, scale = run.parameters_of(op)
    with _outside_autocast(run):
        scores = tape.split(_scores(run, x, fn), [m, m])
        pre, post = (
            tape.scale(tape.unary("sigmoid", tape.add(tape.mul(score, factor), bias)), "add_scalar")
            for score, factor, bias in zip(
                scores, (tape.select(scale, 0) for _ in range(2)), tape.split(base, [m, m]), strict=True
            )
        )
        return post, tape.to(_sum_of(run, x, pre), x.dtype)


class IndependentMerge(Operation):
    __slots__ = ()


@lowering(IndependentMerge)
def independent_merge(run: Lowering, op: IndependentMerge, post: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The result, weighed for every stream, added to the streams in fp32."""
    tape = run.tape
    spread = tape.mul(tape.unsqueeze(post, -1), tape.unsqueeze(tape.to(y, "fp32"), -2))
    return tape.to(tape.add(spread, tape.to(x, "fp32")), x.dtype)


class IndependentHead(Operation):
    __slots__ = ()


@lowering(IndependentHead)
def independent_head(run: Lowering, op: IndependentHead, x: Tensor) -> Tensor:
    tape = run.tape
    fn, base, scale = run.parameters_of(op)
    with _outside_autocast(run):
        scores = tape.mul(_scores(run, x, fn), tape.to(scale, "fp32"))
        weights = tape.unary("sigmoid", tape.add(scores, tape.to(base, "fp32")))
        return tape.to(_sum_of(run, x, tape.scale(weights, "add_scalar")), x.dtype)
