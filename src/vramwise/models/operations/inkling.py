"""What Inkling runs in transformers 5.23: biases by distance, short convolutions in fp32, weighed shared experts."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.activations import apply_activation
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout, needs_mask, repeat_kv
from vramwise.models.operations.chosen_experts import ChosenExperts
from vramwise.models.operations.mixers import PaddingZeroed, padding_zeroed
from vramwise.models.operations.routers import WideRouterProduct, corrected_choice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ResidualConvolution(Operation):
    scaled: bool


@lowering(ResidualConvolution)
def residual_convolution(run: Lowering, op: ResidualConvolution, x: Tensor) -> Tensor:
    """A causal depthwise convolution in the weight's dtype added to its input in fp32."""
    tape = run.tape
    (weight,) = run.parameters_of(op)
    wide = tape.to(x, "fp32")
    h = tape.to(tape.transpose(padding_zeroed(run, PaddingZeroed(), wide), 1, 2), weight.dtype)
    h = tape.depthwise_conv1d(h, tape.unleafed(weight), None, op.parameters[0].shape[-1] - 1)
    h = tape.transpose(tape.to(tape.narrow(h, -1, x.shape[1]), "fp32"), 1, 2)
    h = tape.add(h, wide)
    return tape.to(tape.scale(h) if op.scaled else h, x.dtype)


class BothByLogPosition(Operation):
    __slots__ = ()


@lowering(BothByLogPosition)
def both_by_log_position(run: Lowering, op: BothByLogPosition, *scaled: Tensor) -> tuple[Tensor, ...]:
    """fp32 products with a factor for each position, which every layer makes for itself, cast back."""
    tape = run.tape
    factor = tape.new((1, 1, run.sequence, 1), "fp32", op="add_scalar")
    return tuple(tape.to(tape.mul(tape.to(x, "fp32"), factor), x.dtype) for x in scaled)


class DistanceBias(Operation):
    __slots__ = ()


@lowering(DistanceBias)
def distance_bias(run: Lowering, op: DistanceBias, x: Tensor) -> Tensor:
    """(batch, sequence, heads, d) times profiles over distances, looked up for every pair of positions."""
    tape = run.tape
    (profiles,) = run.parameters_of(op)
    by_distance = tape.transpose(tape.linear(x, tape.transpose(profiles, 0, 1)), 1, 2)
    pairs = (1, 1, run.sequence, run.sequence)
    distance = tape.new(pairs, "int64", op="clamp")
    wide = tape.expand(distance, *by_distance.shape[:2], run.sequence, run.sequence)
    return tape.masked_fill(tape.gather(by_distance, wide), tape.new(pairs, "bool", op="bitwise_or"))


DISTANCE = AttentionStyle("distance", has_float_mask=True)


@DISTANCE.path("eager")
def _eager_distance(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    tape = run.tape
    k, v = repeat_kv(run, op, k, v)
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    mask = tape.new((run.batch, 1, q.shape[2], k.shape[2]), run.hidden_dtype, op="mask")
    weights = tape.to(tape.softmax(tape.add(scores, mask), "fp32"), q.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@DISTANCE.path("sdpa")
def _sdpa_distance(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """The bias reaches SDPA as a mask of floats (`create_position_bias_mask`)."""
    tape, masked = run.tape, needs_mask(run, op)
    times, width = op.num_heads // op.num_key_value_heads, k.shape[-1]
    assert isinstance(width, int)
    native_groups = times > 1 and not masked and width <= 256
    if times > 1 and not native_groups:
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
    if masked or q.shape[2] != 1:
        allowed = _shared_mask(run, op) if masked else tape.new((1, 1, *bias.shape[2:]), "bool", op="ge")
        bias = tape.where(allowed, bias, tape.new((), bias.dtype, op="scalar"))
    out = tape.sdpa(
        q, k, v, mask=tape.contiguous(bias), dropout=attention_dropout(run, op.dropout), enable_gqa=native_groups,
        backend=run.execution.sdpa_backend,
    )  # fmt: skip
    return tape.contiguous(tape.transpose(out, 1, 2))


def _shared_mask(run: Lowering, op: Attention) -> Tensor:
    """The mask that the model makes once for all layers of a kind."""
    name = f"mask of window {op.window}"
    if name not in run.tables:
        rows = run.batch if run.execution.padding else 1
        run.tables[name] = (run.tape.new((rows, 1, run.sequence, run.sequence), "bool", op="mask"),)
    return run.tables[name][0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WeighingRouter(ChosenExperts):
    num_shared: int


@lowering(WeighingRouter)
def weighing_router(run: Lowering, op: WeighingRouter, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """fp32 sigmoids of the chosen experts and of the shared ones, normed together, times a learned number."""
    tape = run.tape
    weight, scale = run.parameters_of(op)
    routed, chosen, shared = op.num_experts, op.experts_per_token, op.num_shared
    rows = tape.reshape(x, -1, x.shape[-1])
    autocast, tape.autocast = tape.autocast, None
    try:
        (logits,) = run.lowered(WideRouterProduct(), rows, weight)
        own, others = tape.split(logits, [routed, shared])
        indices = corrected_choice(run, op, tape.unary("sigmoid", tape.detached(own)))
        shares = tape.log_sigmoid(tape.cat([tape.gather(own, indices), others]))
        total = tape.unsqueeze(tape.logsumexp(shares), -1)
        shares = tape.scale(tape.unary("exp", tape.add(shares, total)))
        shares = tape.mul(shares, tape.to(scale, "fp32"))
    finally:
        tape.autocast = autocast
    own, others = tape.split(tape.to(shares, x.dtype), [chosen, shared])
    return tape.contiguous(own), indices, tape.contiguous(others)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class WeighedExperts(Operation):
    count: int
    function: str


@lowering(WeighedExperts)
def weighed_experts(run: Lowering, op: WeighedExperts, x: Tensor, weights: Tensor) -> Tensor:
    """Shared experts as batched products, each weighed like a routed one; summed in fp32."""
    tape, count = run.tape, op.count
    gate, up, down = (tape.transpose(tape.unleafed(w), 1, 2) for w in run.parameters_of(op))
    rows = tape.reshape(x, 1, -1, x.shape[-1])
    rows = tape.expand(rows, count, rows.shape[1], x.shape[-1])
    factors = tape.transpose(tape.reshape(weights, -1, count, 1), 0, 1)
    h = apply_activation(tape, op.function, tape.matmul(rows, gate))
    h = tape.mul(tape.mul(h, tape.matmul(rows, up)), factors)
    total = tape.reduce("sum", tape.to(tape.matmul(h, down), "fp32"), 0, keepdim=False)
    return tape.view(tape.to(total, x.dtype), *x.shape)
