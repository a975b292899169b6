"""What only Gemma 4's and Gemma 3n's language models run in transformers 5.23."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import AnyRotary, rotary_table
from vramwise.models.operations.routers import ROUTES, Router, normalized_weights


class RotaryByRow(AnyRotary):
    __slots__ = ()


@lowering(RotaryByRow)
def rotary_by_row(run: Lowering, op: RotaryByRow, x: Tensor) -> Tensor:
    """x·cos + rotate_half(x)·sin on (batch, sequence, heads, d)."""
    tape, half = run.tape, x.shape[-1] // 2
    cos, sin = (tape.unsqueeze(table, 2) for table in rotary_table(run, op.table, op.inputs[0].width))
    first, second = tape.narrow(x, -1, half), tape.narrow(x, -1, half)
    turned = tape.cat([tape.unary("neg", second), first])
    return tape.add(tape.mul(x, cos), tape.mul(turned, sin))


class LayerSlice(Operation):
    __slots__ = ()


@lowering(LayerSlice)
def layer_slice(run: Lowering, op: LayerSlice, x: Tensor) -> Tensor:
    """The layer's own part of (batch, sequence, layers, width): a view."""
    return run.tape.select(x, 2)


class AmongTokens(Operation):
    __slots__ = ()


@lowering(AmongTokens)
def among_tokens(run: Lowering, op: AmongTokens, others: Tensor, x: Tensor) -> Tensor:
    """Rows of `others` at the places that a mask over tokens names, rows of `x` at all other places."""
    places = run.tape.new((*x.shape[:-1], 1), "bool", op="ge")
    return run.tape.where(places, others, x)


class Buffer(Operation):
    __slots__ = ()


@lowering(Buffer)
def buffer(run: Lowering, op: Buffer) -> Tensor:
    """A scalar that a module keeps."""
    return run.tape.new((), run.execution.param_dtype, kind="buffer", op="buffer")


class ScaleByBufferInPlace(Operation):
    __slots__ = ()


@lowering(ScaleByBufferInPlace)
def scale_by_buffer_(run: Lowering, op: ScaleByBufferInPlace, x: Tensor) -> Tensor:
    """In-place product with a buffer of one element, which backward reads."""
    return run.tape.mul_(x, run.tape.new((1,), run.execution.param_dtype, kind="buffer", op="buffer"))


@ROUTES.named("gemma4")
def _route_gemma4(
    run: Lowering, op: Router, x: Tensor, weight: Tensor, scale: Tensor, factors: Tensor
) -> tuple[Tensor, Tensor]:
    """Normed and scaled rows, fp32 softmax over all experts, the best few times a factor of each expert's."""
    tape = run.tape
    h = tape.to(x, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.to(tape.mul(h, tape.unary("pow", variance)), x.dtype)
    logits = tape.linear(tape.scale(tape.mul(h, scale)), weight)
    shares, indices = tape.topk(tape.softmax(logits, "fp32"), op.experts_per_token)
    own = tape.reshape(tape.index_rows(factors, tape.reshape(indices, -1)), *indices.shape)
    return tape.mul(normalized_weights(run, op, shares), own), indices
