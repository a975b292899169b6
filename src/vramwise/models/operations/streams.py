"""The streams of Gemma 3n (AltUp) as transformers 5.23 runs them: (streams, batch, sequence, width)."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


class OneStream(Operation):
    __slots__ = ()


@lowering(OneStream)
def one_stream(run: Lowering, op: OneStream, x: Tensor) -> Tensor:
    return run.tape.select(x, 0)


class RepeatedVector(Operation):
    __slots__ = ()


@lowering(RepeatedVector)
def repeated_vector(run: Lowering, op: RepeatedVector, x: Tensor) -> Tensor:
    """A vector that is not trained, copied for every position."""
    (vector,) = run.parameters_of(op)
    return replace(run.tape.clone_contiguous(run.tape.expand(vector, *x.shape)), requires_grad=False)


class Clone(Operation):
    __slots__ = ()


@lowering(Clone)
def clone(run: Lowering, op: Clone, x: Tensor) -> Tensor:
    return run.tape.clone_contiguous(x)


class TanhFp32(Operation):
    __slots__ = ()


@lowering(TanhFp32)
def tanh_fp32(run: Lowering, op: TanhFp32, x: Tensor) -> Tensor:
    return run.tape.to(run.tape.unary("tanh", run.tape.to(x, "fp32")), x.dtype)


class ScaleByWeight(Operation):
    __slots__ = ()


@lowering(ScaleByWeight)
def scale_by_weight(run: Lowering, op: ScaleByWeight, x: Tensor) -> Tensor:
    """A product with a weight in the weight's dtype, cast back."""
    (weight,) = run.parameters_of(op)
    return run.tape.to(run.tape.mul(run.tape.to(x, weight.dtype), weight), x.dtype)


def _magnitude_kept(run: Lowering, x: Tensor, others: tuple[Tensor, ...]) -> Tensor:
    """The others brought to the root mean square of the first, all stacked."""
    tape = run.tape
    target = tape.unary("pow", tape.reduce("mean", tape.unary("pow", x)))
    streams = [x]
    for other in others:
        stream = tape.to(other, x.dtype)
        square = tape.reduce("mean", tape.unary("pow", stream))
        magnitude = tape.unary("sqrt", tape.unary("clamp", square))
        streams.append(tape.div(tape.mul(stream, target), magnitude))
    return tape.stack(streams, 0)


class StackStreams(Operation):
    __slots__ = ()


@lowering(StackStreams)
def stack_streams(run: Lowering, op: StackStreams, x: Tensor, *others: Tensor) -> Tensor:
    return _magnitude_kept(run, x, others)


class AverageStreams(Operation):
    __slots__ = ()


@lowering(AverageStreams)
def average_streams(run: Lowering, op: AverageStreams, x: Tensor, *others: Tensor) -> Tensor:
    return run.tape.reduce("mean", _magnitude_kept(run, x, others), 0, keepdim=False)


class PredictStreams(Operation):
    __slots__ = ()


@lowering(PredictStreams)
def predict_streams(run: Lowering, op: PredictStreams, x: Tensor, coefficients: Tensor) -> Tensor:
    """`Gemma3nTextAltUp.predict`: every stream a mixture of all, added to what it was."""
    tape, n = run.tape, x.shape[0]
    matrices = tape.permute(tape.view(coefficients, *coefficients.shape[:-1], n, n), 0, 1, 3, 2)
    mixed = tape.permute(tape.matmul(tape.permute(x, 1, 2, 3, 0), matrices), 3, 0, 1, 2)
    return tape.to(tape.contiguous(tape.add_(mixed, x)), x.dtype)


@record(kw_only=True, eq=False)
class CorrectStreams(Operation):
    clipped: bool


@lowering(CorrectStreams)
def correct_streams(run: Lowering, op: CorrectStreams, predictions: Tensor, x: Tensor, chosen: Tensor) -> Tensor:
    """`Gemma3nTextAltUp.correct`: what the layer changed, weighted for each stream, added to its prediction."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    change = tape.add(x, tape.select(predictions, 0))
    change = tape.clone_contiguous(tape.expand(tape.unsqueeze(change, 0), *predictions.shape))
    if op.clipped:
        weight = tape.unary("clamp", weight)
    factors = tape.scale(tape.linear(chosen, weight), "add_scalar")
    factors = tape.unsqueeze(tape.permute(factors, 2, 0, 1), -1)
    corrected = tape.add_(tape.mul(change, factors), predictions)
    return tape.to(tape.contiguous(corrected), x.dtype)


class AddToStreams(Operation):
    __slots__ = ()


@lowering(AddToStreams)
def add_to_streams(run: Lowering, op: AddToStreams, streams: Tensor, x: Tensor) -> Tensor:
    """`streams[1:] += x`: in place."""
    return run.tape.add_(streams, x)


class GaussianTop(Operation):
    __slots__ = ()


@lowering(GaussianTop)
def gaussian_top(run: Lowering, op: GaussianTop, x: Tensor) -> Tensor:
    """`Gemma3nTextMLP._gaussian_topk`: what lies above mean + a multiple of the standard deviation."""
    tape = run.tape
    mean = tape.reduce("mean", x)
    deviation = tape.std(x)
    cutoff = tape.add(mean, tape.mul(deviation, tape.new((), x.dtype, op="_to_copy")))
    return tape.unary("relu", tape.add(x, cutoff))
