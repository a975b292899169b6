"""T5's attention as transformers 5.23 runs it: learned relative biases that reach SDPA as a mask of floats."""

from __future__ import annotations

from vramwise.errors import UnsupportedModelError
from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout
from vramwise.records import record


@record(kw_only=True, eq=False)
class RelativePositionBias(Operation):
    stack: str


@lowering(RelativePositionBias)
def relative_position_bias(run: Lowering, op: RelativePositionBias) -> Tensor:
    """`compute_bias`: the bucket of every pair of positions looked up, seen as (1, heads, queries, keys)."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    length = run.source if op.stack == "encoder" else run.sequence
    buckets = tape.new((length, length), "int64", op="add_")
    return tape.unsqueeze(tape.permute(tape.embedding(buckets, weight), 2, 0, 1), 0)


@record(kw_only=True, eq=False)
class ZeroPositionBias(Operation):
    """`wanted`: the class has them ask for a gradient where layers are checkpointed."""

    wanted: bool = True


@lowering(ZeroPositionBias)
def zero_position_bias(run: Lowering, op: ZeroPositionBias, x: Tensor) -> Tensor:
    """Cross-attention has no bias of its own: zeros in the queries' dtype, shared by all layers.

    `if self.gradient_checkpointing and self.training: position_bias.requires_grad = True` (transformers 4.57 to 5.23).
    """
    shape = (1, op.outputs[0].width, run.sequence, run.source)
    zeros = run.tape.new(shape, run.execution.autocast or x.dtype, op="zeros")
    return run.tape.wanted(zeros) if op.wanted and run.execution.checkpoints else zeros


class ClampFp16(Operation):
    __slots__ = ()


@lowering(ClampFp16)
def clamp_fp16(run: Lowering, op: ClampFp16, x: Tensor) -> Tensor:
    """fp16 hidden states are clamped between two scalar tensors; other dtypes pass."""
    if x.dtype != "fp16":
        return x
    tape = run.tape
    out = tape.like(x, requires_grad=x.requires_grad, op="clamp")
    limits = [(tape.new((), "fp32", op=made), role) for made, role in (("neg", "min"), ("where", "max"))]
    tape.record("clamp", [x], [out], [(x, "self"), *limits])
    return out


T5 = AttentionStyle("t5", has_float_mask=True)
LONG_T5 = AttentionStyle("longt5", has_float_mask=True)
"""Its layer keeps the weights of both kinds among `attention_outputs` (transformers 5.23, LongT5Block)."""


@LONG_T5.path("eager")
@T5.path("eager")
def _eager_t5(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    tape = run.tape
    k, v = _cached_source(run, op, k), _cached_source(run, op, v)
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    if op.causal or run.execution.padding:
        mask = tape.new((run.batch, 1, q.shape[2], k.shape[2]), run.hidden_dtype, op="mask")
        scores = tape.add(scores, mask)
    if run.execution.wide_softmax:  # `softmax(scores.float(), dim=-1).type_as(scores)`
        weights = tape.to(tape.softmax(tape.to(scores, "fp32")), scores.dtype)
    else:
        weights = tape.softmax(scores)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    named = run.named_in[""]
    if op.style is not LONG_T5 and named:  # the layer binds `_` to them, which cross-attention binds anew
        tape.record("locals", named, [])
        named.clear()
    named.append(weights)
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@T5.path("sdpa")
def _sdpa_t5(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    tape = run.tape
    k, v = _cached_source(run, op, k), _cached_source(run, op, v)
    mask = tape.contiguous(_masked_bias(run, op, bias))
    out = tape.sdpa(
        q, k, v, mask=mask, dropout=attention_dropout(run, op.dropout), backend=run.execution.sdpa_backend
    )  # fmt: skip
    return tape.contiguous(tape.transpose(out, 1, 2))


@T5.path("flash")
def _flash_t5(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    raise UnsupportedModelError('t5 has no flash attention in transformers; use attention "sdpa" or "eager"')


def _cached_source(run: Lowering, op: Attention, x: Tensor) -> Tensor:
    """Keys or values of the encoder's tokens pass through a `DynamicCache` too, which copies them."""
    return run.through_cache(2, x)[0] if op.cross else x


def _masked_bias(run: Lowering, op: Attention, bias: Tensor) -> Tensor:
    """`create_position_bias_mask`: the bias where attention is allowed, a large negative number elsewhere."""
    tape = run.tape
    shape = (1, 1, *bias.shape[2:])
    if op.causal and bias.shape[2] != 1:
        allowed = tape.new(shape, "bool", op="ge")
    elif run.execution.padding:
        allowed = _padding_mask(run, op, (run.batch, *shape[1:]))
    else:
        return bias
    return tape.where(allowed, bias, tape.new((), bias.dtype, op="scalar"))


def _padding_mask(run: Lowering, op: Attention, shape: tuple[Dim, ...]) -> Tensor:
    """One mask for all layers of the encoder, and one for all cross-attention."""
    name = f"padding mask of {op.module}"
    if name not in run.tables:
        run.tables[name] = (run.tape.new(shape, "bool", op="mask"),)
    return run.tables[name][0]
