"""Hunyuan 4's residual streams in transformers 5.23: weighed in fp32 outside of autocast, without mixing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class IndependentStreamPaths:
    """Streams of (batch, sequence, streams, width)."""

    tape: Tape
    parameters_of: Callable[[Op], list[Tensor]]

    @contextmanager
    def _outside_autocast(self) -> Iterator[None]:
        autocast, self.tape.autocast = self.tape.autocast, None
        try:
            yield
        finally:
            self.tape.autocast = autocast

    def _scores(self, x: Tensor, weight: Tensor) -> Tensor:
        """A product of all of a token's streams, over their root mean square."""
        tape = self.tape
        flat = tape.to(tape.view(x, *x.shape[:2], -1), "fp32")
        scores = tape.linear(flat, tape.to(weight, "fp32"))
        mean = tape.scale(tape.reduce("mean", tape.unary("pow", flat)), "add_scalar")
        return tape.mul(scores, tape.unary("rsqrt", mean))

    def _sum_of(self, x: Tensor, weights: Tensor) -> Tensor:
        return self.tape.reduce("sum", self.tape.mul(self.tape.unsqueeze(weights, -1), x), 2, keepdim=False)

    def independent_connection(self, op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
        """Weights of the result for every stream, and the streams' weighed sum."""
        tape, m = self.tape, x.shape[2]
        fn, base, scale = self.parameters_of(op)
        with self._outside_autocast():
            scores = tape.split(self._scores(x, fn), [m, m])
            pre, post = (
                tape.scale(tape.unary("sigmoid", tape.add(tape.mul(score, factor), bias)), "add_scalar")
                for score, factor, bias in zip(
                    scores, (tape.select(scale, 0) for _ in range(2)), tape.split(base, [m, m]), strict=True
                )
            )
            return post, tape.to(self._sum_of(x, pre), x.dtype)

    def independent_merge(self, op: Op, post: Tensor, y: Tensor, x: Tensor) -> Tensor:
        """The result, weighed for every stream, added to the streams in fp32."""
        tape = self.tape
        spread = tape.mul(tape.unsqueeze(post, -1), tape.unsqueeze(tape.to(y, "fp32"), -2))
        return tape.to(tape.add(spread, tape.to(x, "fp32")), x.dtype)

    def independent_head(self, op: Op, x: Tensor) -> Tensor:
        tape = self.tape
        fn, base, scale = self.parameters_of(op)
        with self._outside_autocast():
            scores = tape.mul(self._scores(x, fn), tape.to(scale, "fp32"))
            weights = tape.unary("sigmoid", tape.add(scores, tape.to(base, "fp32")))
            return tape.to(self._sum_of(x, tape.scale(weights, "add_scalar")), x.dtype)
