"""The streams of Gemma 3n (AltUp) as transformers 5.23 runs them: (streams, batch, sequence, width)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class StreamPaths:
    """Streams made, predicted, corrected and averaged; the largest gates of a sparse MLP."""

    tape: Tape
    parameters_of: Callable[[Op], list[Tensor]]

    def one_stream(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.select(x, 0)

    def repeated_vector(self, op: Op, x: Tensor) -> Tensor:
        """A vector that is not trained, copied for every position."""
        (vector,) = self.parameters_of(op)
        return replace(self.tape.clone_contiguous(self.tape.expand(vector, *x.shape)), requires_grad=False)

    def clone(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.clone_contiguous(x)

    def tanh_fp32(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.to(self.tape.unary("tanh", self.tape.to(x, "fp32")), x.dtype)

    def scale_by_weight(self, op: Op, x: Tensor) -> Tensor:
        """A product with a weight in the weight's dtype, cast back."""
        (weight,) = self.parameters_of(op)
        return self.tape.to(self.tape.mul(self.tape.to(x, weight.dtype), weight), x.dtype)

    def _magnitude_kept(self, x: Tensor, others: tuple[Tensor, ...]) -> Tensor:
        """The others brought to the root mean square of the first, all stacked."""
        tape = self.tape
        target = tape.unary("pow", tape.reduce("mean", tape.unary("pow", x)))
        streams = [x]
        for other in others:
            stream = tape.to(other, x.dtype)
            square = tape.reduce("mean", tape.unary("pow", stream))
            magnitude = tape.unary("sqrt", tape.unary("clamp", square))
            streams.append(tape.div(tape.mul(stream, target), magnitude))
        return tape.stack(streams, 0)

    def stack_streams(self, op: Op, x: Tensor, *others: Tensor) -> Tensor:
        return self._magnitude_kept(x, others)

    def average_streams(self, op: Op, x: Tensor, *others: Tensor) -> Tensor:
        return self.tape.reduce("mean", self._magnitude_kept(x, others), 0, keepdim=False)

    def predict_streams(self, op: Op, x: Tensor, coefficients: Tensor) -> Tensor:
        """`Gemma3nTextAltUp.predict`: every stream a mixture of all, added to what it was."""
        tape, n = self.tape, x.shape[0]
        matrices = tape.permute(tape.view(coefficients, *coefficients.shape[:-1], n, n), 0, 1, 3, 2)
        mixed = tape.permute(tape.matmul(tape.permute(x, 1, 2, 3, 0), matrices), 3, 0, 1, 2)
        return tape.to(tape.contiguous(tape.add_(mixed, x)), x.dtype)

    def correct_streams(self, op: Op, predictions: Tensor, x: Tensor, chosen: Tensor) -> Tensor:
        """`Gemma3nTextAltUp.correct`: what the layer changed, weighted for each stream, added to its prediction."""
        tape = self.tape
        (weight,) = self.parameters_of(op)
        change = tape.add(x, tape.select(predictions, 0))
        change = tape.clone_contiguous(tape.expand(tape.unsqueeze(change, 0), *predictions.shape))
        if op.settings["clipped"]:
            weight = tape.unary("clamp", weight)
        factors = tape.scale(tape.linear(chosen, weight), "add_scalar")
        factors = tape.unsqueeze(tape.permute(factors, 2, 0, 1), -1)
        corrected = tape.add_(tape.mul(change, factors), predictions)
        return tape.to(tape.contiguous(corrected), x.dtype)

    def add_to_streams(self, op: Op, streams: Tensor, x: Tensor) -> Tensor:
        """`streams[1:] += x`: in place."""
        return self.tape.add_(streams, x)

    def gaussian_top(self, op: Op, x: Tensor) -> Tensor:
        """`Gemma3nTextMLP._gaussian_topk`: what lies above mean + a multiple of the standard deviation."""
        tape = self.tape
        mean = tape.reduce("mean", x)
        deviation = tape.std(x)
        cutoff = tape.add(mean, tape.mul(deviation, tape.new((), x.dtype, op="_to_copy")))
        return tape.unary("relu", tape.add(x, cutoff))
