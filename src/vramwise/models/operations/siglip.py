"""SigLIP's pooling, comparison and loss as transformers 5.23 runs them."""

from __future__ import annotations

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.losses import LOSSES
from vramwise.records import record


@record(kw_only=True, eq=False)
class AttentionPooling(Operation):
    num_heads: int


@lowering(AttentionPooling)
def attention_pooling(run: Lowering, op: AttentionPooling, x: Tensor) -> Tensor:
    """`nn.MultiheadAttention` of one learned query over all patches: (b, n, w) -> (b, 1, w).

    Its packed weight is cut in two, so that autocast casts both parts anew.
    """
    tape, heads = run.tape, op.num_heads
    probe, weight, bias, out_weight, out_bias = run.parameters_of(op)
    b, n, w = x.shape
    query = tape.transpose(tape.repeat_rows(probe, b), 0, 1)
    w_q, w_kv = tape.split(tape.unleafed(weight), [w, 2 * w], 0)
    b_q, b_kv = tape.split(tape.unleafed(bias), [w, 2 * w], 0)
    q = tape.linear(query, w_q, b_q)
    kv = tape.view(tape.linear(tape.transpose(x, 0, 1), w_kv, b_kv), n, b, 2, w)
    kv = tape.contiguous(tape.permute(kv, 2, 0, 1, 3))
    q = tape.scale(tape.transpose(tape.view(q, 1, b * heads, w // heads), 0, 1))
    k, v = (tape.transpose(tape.view(tape.select(kv, 0), n, b * heads, w // heads), 0, 1) for _ in range(2))
    weights = tape.softmax(tape.matmul(q, tape.transpose(k, 1, 2)))
    mixed = tape.contiguous(tape.transpose(tape.matmul(weights, v), 0, 1))
    out = tape.linear(tape.view(mixed, b, w), out_weight, out_bias)
    return tape.transpose(tape.view(out, 1, b, w), 0, 1)


class OverNorm(Operation):
    __slots__ = ()


@lowering(OverNorm)
def over_norm(run: Lowering, op: OverNorm, x: Tensor) -> Tensor:
    """x / |x|."""
    return run.tape.div(x, run.tape.vector_norm(x))


class ShiftedSimilarities(Operation):
    __slots__ = ()


@lowering(ShiftedSimilarities)
def shifted_similarities(run: Lowering, op: ShiftedSimilarities, text: Tensor, image: Tensor) -> Tensor:
    """Every text against every image of the batch, times the exponential of a learned scale, plus a shift."""
    tape, (scale, shift) = run.tape, run.parameters_of(op)
    rows, columns = tape.autocast_low(text, tape.transpose(image, 0, 1))
    return tape.add(tape.mul(tape.mm("mm", rows, columns), tape.unary("exp", scale)), shift)


@LOSSES.named("pairwise-sigmoid")
def pairwise_sigmoid_loss(run: Lowering, logits: Tensor) -> Tensor:
    """Every pair of the batch for itself: log-sigmoid, which on the CPU keeps a buffer too, of signed logits."""
    tape = run.tape
    with tape.inside("loss"):
        signs = tape.new(logits.shape, promote(logits.dtype, "fp32"), op="add")
        signed = tape.mul(signs, logits)
        out = tape.like(signed, requires_grad=True, op="log_sigmoid_forward")
        buffer = tape.new(signed.shape if tape.device == "cpu" else (0,), signed.dtype, op="log_sigmoid_forward")
        tape.record("log_sigmoid_forward", [signed], [out], [(signed, "self"), (buffer, "buffer")])
        return tape.reduce("mean", tape.unary("neg", tape.reduce("sum", out, keepdim=False)), keepdim=False)
