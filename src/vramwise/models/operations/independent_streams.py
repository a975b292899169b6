"""Hunyuan 4's residual streams in transformers 5.23: weighed in fp32 outside of autocast, without mixing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering


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
