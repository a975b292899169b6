"""Kimi delta attention (arXiv 2510.26692): the delta rule with a decay for every channel of a key."""

from __future__ import annotations

from typing import Any

from vramwise.models.autograd.size import Dim, chunks_of, probe, product
from vramwise.models.autograd.tensor import ITEM_BYTES, Tensor
from vramwise.models.blocks import Operation, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.layers.delta_net import CHUNK
from vramwise.models.layers.short_convolution import short_convolution
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.delta_rule import padded_to_chunks
from vramwise.models.operations.mixers import ChannelsFirst, ChannelsLast, PaddingZeroed
from vramwise.models.operations.simple import Concatenate
from vramwise.records import record


def delta_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
    """out(norm(rule(conv(q, k, v), b, decay)) · gate): the delta rule with a decay for every channel of a key."""
    heads, d, kernel = c.size("linear_num_heads"), c.size("linear_head_dim"), c.size("linear_conv_kernel_dim")
    width, kimi, module = heads * d, c.model_type != "bailing_hybrid", "self_attn"
    b.part = "mixer"
    x, hidden_size = b.unary(PaddingZeroed(always=c.model_type == "glm5_next_text"), x), x.width
    pieces = [b.linear(x, f"{module}.{name}_proj", width) for name in "qkv"]
    (joint,) = b.op(Concatenate(), module, pieces, [3 * width])
    h = b.unary(ChannelsFirst(), joint)
    h = short_convolution(b, h, f"{module}.conv1d", kernel, function=c.text("hidden_act"))
    q, k, v = b.split(b.unary(ChannelsLast(), h), [width] * 3)
    decay = forget_gate(b, x, c, width, heads, module)
    beta = b.linear(x, f"{module}.b_proj", heads)
    settings: dict[str, Any] = {"num_heads": heads, "chunk_size": CHUNK}
    (mixed,) = b.op(KimiDeltaRule(**settings), module, [q, k, v, beta, decay], [width])
    narrow = kimi and not c.flag("use_full_rank_gate")
    gate = b.linear(x, f"{module}.g_a_proj", d, shard="replicated") if narrow else x
    gate = b.linear(gate, f"{module}.{'g_b_proj' if narrow else 'g_proj'}", width)
    weight = b.parameter(f"{module}.o_norm", "weight", (d,), part="norm")
    (mixed,) = b.op(SigmoidGatedNorm(), f"{module}.o_norm", [mixed, gate], [width], [weight])
    b.keep(LayerCache("recurrent", conv_state_elements=3 * width * kernel, state_elements=width * d))
    return b.linear(mixed, f"{module}.o_proj", hidden_size, shard="row")


def forget_gate(b: BlockBuilder, x: Value, c: Config, width: int, heads: int, module: str) -> Value:
    """The logarithm of the decay of every channel; Kimi's comes through a narrow product."""
    module, kimi = f"{module}.forget_gate", c.model_type != "bailing_hybrid"
    flat = c.model_type != "kimi_linear"
    shape = (heads,) if flat else (1, 1, heads, 1)
    # Kimi K3's files have one for each channel of a head; its 96 heads read the first 96 of 128.
    shape = (width // heads,) if c.flag("use_full_rank_gate") else shape
    rates = b.parameter(module, "A_log", shape, shard="column")
    parameters = [b.parameter(module, "dt_bias", (width,), shard="column"), rates]
    if kimi:
        h = b.linear(x, f"{module}.f_a_proj", width // heads, shard="replicated")
        h = b.linear(h, f"{module}.f_b_proj", width)
        bounded = c.has("linear_lower_bound")
        return b.unary(KimiForgetGate(num_heads=heads, flat=flat, bounded=bounded), h, module, parameters)
    h = b.linear(x, f"{module}.f_proj", width)
    bounded = c.flag("kda_safe_gate", True)
    return b.unary(BailingForgetGate(num_heads=heads, bounded=bounded), h, module, parameters)


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# Its decays are for every channel of a key, so that every pair of positions of a chunk has a vector of them: 64 times
# the keys, several times over. fla's kernels (`chunk_kda`), which are used where that package is installed, keep none
# of it.


# -- gates ---------------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class KimiForgetGate(Operation):
    """`flat`: the rates of the heads are a vector; `bounded`: no decay is below a bound."""

    num_heads: int
    flat: bool = False
    bounded: bool = False


@lowering(KimiForgetGate)
def kimi_forget_gate(run: Lowering, op: KimiForgetGate, x: Tensor) -> Tensor:
    """−exp(A)·log(1 + exp(x + bias)) in fp32, the logarithm left out where x is large, or bound·sigmoid(exp(A)·(x +
    bias)): (b, s, h, d)."""
    tape, heads = run.tape, op.num_heads
    bias, a_log = (tape.to(p, "fp32") for p in run.parameters_of(op))
    g = tape.add(tape.to(x, "fp32"), tape.view(bias, 1, 1, -1))
    g = tape.view(g, *g.shape[:2], heads, -1)
    rate = tape.unary("exp", tape.view(a_log, 1, 1, heads, 1) if op.flat else a_log)
    if op.bounded:
        return tape.scale(tape.unary("sigmoid", tape.mul(rate, g)))
    large = tape.new(g.shape, "bool", op="gt")
    soft = tape.unary("log", tape.scale(tape.unary("exp", g), "add_scalar"))
    return tape.mul(tape.unary("neg", rate), tape.where(large, g, soft))


@record(kw_only=True, eq=False)
class BailingForgetGate(Operation):
    num_heads: int
    bounded: bool


@lowering(BailingForgetGate)
def bailing_forget_gate(run: Lowering, op: BailingForgetGate, x: Tensor) -> Tensor:
    """bound·sigmoid(exp(A)·(x + bias)), or −exp(A)·softplus(x + bias), cast back to the layer's dtype."""
    tape, heads = run.tape, op.num_heads
    bias, a_log = run.parameters_of(op)
    g = tape.to(x, "fp32")
    g = tape.add(tape.view(g, *g.shape[:2], heads, -1), tape.view(bias, 1, 1, heads, -1))
    rate = tape.view(tape.unary("exp", a_log), 1, 1, heads, 1)
    if op.bounded:
        g = tape.scale(tape.unary("sigmoid", tape.mul(rate, g)))
    else:
        g = tape.mul(tape.unary("neg", rate), tape.unary("softplus", g))
    return tape.to(g, run.hidden_dtype)


class SigmoidGatedNorm(Operation):
    __slots__ = ()
    is_norm = True


@lowering(SigmoidGatedNorm)
def sigmoid_gated_norm(run: Lowering, op: SigmoidGatedNorm, x: Tensor, gate: Tensor) -> Tensor:
    """Root-mean-square norm of every head and the product with sigmoid(gate), all in fp32: (b, s, h·d)."""
    tape, (weight,) = run.tape, run.parameters_of(op)
    h = tape.to(x, "fp32")
    variance = tape.scale(tape.reduce("mean", tape.unary("pow", h)), "add_scalar")
    h = tape.mul(tape.to(weight, "fp32"), tape.mul(h, tape.unary("rsqrt", variance)))
    gate = tape.to(tape.view(gate, *x.shape), "fp32")
    h = tape.to(tape.mul(h, tape.unary("sigmoid", gate)), x.dtype)
    return tape.reshape(h, *x.shape[:2], -1)


# -- the rule ------------------------------------------------------------------------------------------


@record(kw_only=True, eq=False)
class KimiDeltaRule(Operation):
    package = "flash-linear-attention"

    num_heads: int
    chunk_size: int


@lowering(KimiDeltaRule)
def kimi_delta_rule(
    run: Lowering, op: KimiDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> Tensor:
    """`chunk_kimi_delta_attention`: (b, s, h·d) -> (b, s, h, d)."""
    tape, length, heads = run.tape, op.chunk_size, op.num_heads
    dtype, beta = q.dtype, tape.unary("sigmoid", beta)
    q, k, v = (tape.view(x, *x.shape[:2], heads, -1) for x in (q, k, v))
    q, k, v, beta, decay = (tape.to(tape.contiguous(tape.transpose(x, 1, 2)), "fp32") for x in (q, k, v, beta, decay))
    q, k = (_over_root(run, x) for x in (q, k))
    many = length in run.windows_reached
    chunks = chunks_of(run.sequence, length) if many else 1
    q, k, v, decay, beta = (padded_to_chunks(run, x, chunks * length, length) for x in (q, k, v, decay, beta))
    q, rates = tape.scale(q), tape.unsqueeze(beta, -1)
    v_beta, k_beta = tape.mul(v, rates), tape.mul(k, rates)
    shape = (*q.shape[:2], chunks, length)
    q, k, decay, k_beta, v_beta = (tape.reshape(x, *shape, x.shape[-1]) for x in (q, k, decay, k_beta, v_beta))
    total = tape.cumsum(decay, -2)
    pairs = _pair_decays(run, total, length)
    system = _inverted(run, tape.unary("neg", _masked_products(run, k_beta, k, pairs)), length)
    values = tape.matmul(system, v_beta)
    keys_read = tape.matmul(system, tape.mul(k_beta, tape.unary("exp", total)))
    out = _kimi_walk(run, q, k, keys_read, total, pairs, values)
    out = tape.narrow(tape.reshape(out, *out.shape[:2], -1, out.shape[-1]), 2, run.sequence)
    return tape.to(tape.contiguous(tape.transpose(out, 1, 2)), dtype)


def _over_root(run: Lowering, x: Tensor) -> Tensor:
    """x / |x|, by a root and a quotient."""
    tape = run.tape
    squares = tape.scale(tape.reduce("sum", tape.mul(x, x)), "add_scalar")
    return tape.div(x, tape.unary("sqrt", squares))


def _triangle(run: Lowering, length: Dim) -> Tensor:
    return run.tape.new((length, length), "bool", op="triu")


def _pair_decays(run: Lowering, total: Tensor, length: int) -> Tensor:
    """exp(g_i − g_j) for every pair of positions of a chunk and every channel: (b, h, n, c, c, d)."""
    tape = run.tape
    apart = tape.add(tape.unsqueeze(total, -2), tape.unsqueeze(total, -3))
    return tape.unary("exp", tape.masked_fill(apart, tape.unsqueeze(_triangle(run, length), -1)))


def _masked_products(run: Lowering, left: Tensor, right: Tensor, pairs: Tensor) -> Tensor:
    """Sums over channels of left_i · right_j · decay_ij, without what lies ahead."""
    tape = run.tape
    products = tape.mul(tape.mul(tape.unsqueeze(left, -2), tape.unsqueeze(right, -3)), pairs)
    return tape.masked_fill(tape.reduce("sum", products, keepdim=False), _triangle(run, left.shape[-2]))


def _inverted(run: Lowering, system: Tensor, length: int) -> Tensor:
    """The triangular system solved row by row: each step keeps clones of its row and of all rows above."""
    tape, batch = run.tape, system.shape[:3]
    rows = tape.new((*batch, length * (length - 1) // 2), "fp32", requires_grad=True, op="clone")
    above = tape.new((*batch, (length - 1) * length * (2 * length - 1) // 6), "fp32", op="clone")
    tape.record("mul", [system], [rows], [(rows, "self"), (above, "other")])
    return tape.scale(system, "add_scalar")


def _kimi_walk(
    run: Lowering, q: Tensor, k: Tensor, keys_read: Tensor, total: Tensor, pairs: Tensor, values: Tensor
) -> Tensor:  # fmt: skip
    """From chunk to chunk: new = values − keys·S; out = q·S + scores·new; S = decay·S + kᵀ·new.

    S begins as zeros without a gradient, and the last S is not read: what leads there is dropped. Under autocast
    each product casts its own operands, an fp32 S once for each of two; S itself is kept by the product with the
    decay. Scores are sums over channels of q_i · k_j · decay_ij in a chunk. Steps are alike, so that they are
    recorded once.
    """
    tape = run.tape
    b, h, chunks, length, d = q.shape
    later, low, many = chunks - 1, values.dtype, probe(chunks) > 1
    state, rows = (b, h, d, d), (b, h, length, d)
    zeros = tape.new(state, low, op="zeros")
    entered = tape.unary("exp", total)
    read = tape.mul(q, entered)
    scores = tape.new((b, h, chunks, length, length), low, op="masked_fill")
    products = tape.new(pairs.shape, pairs.dtype, op="mul")
    of_a_chunk = product((b, h, length, length, d)) * ITEM_BYTES[pairs.dtype]
    corrections = tape.new((chunks, *rows), low, requires_grad=True, op="sub")
    out = tape.new(values.shape, low, requires_grad=True, op="zeros_like")
    kept = [zeros, scores, corrections]
    if many:
        states = tape.new((later, *state), "fp32", requires_grad=True, op="add")
        read_later = tape.new((later, *rows), low, op="clone")
        left = [tape.new((later, *rows), "fp32", op="exp"), tape.new((later, b, h, d), "fp32", op="exp")]
        written = tape.new((later, *rows), low, op="mul")
        kept += [keys_read, read_later, *left, written, k]
        if low == "fp32":
            kept.append(states)
        else:
            kept += [tape.new((later - 1, *state), "fp32", op="add"), tape.new((2 * later, *state), low)]
    work = 2 * product(state) * length
    within = 2 * product((b, h, chunks, length, length, d))
    saves = [(products, "chunks")] * pairs.requires_grad + [(pairs, "other")] * (q.requires_grad or k.requires_grad)
    saves += [(q, "self")] * k.requires_grad + [(k, "self")] * q.requires_grad
    saves += [(_triangle(run, length), "chunks")]
    # Backward of a chunk has two gradients of its products, and one as large as all decays that is zero but for it.
    tape.record(
        "bmm", [read, q, k, keys_read, total, pairs, values, zeros], [corrections, out],
        [*saves, *((x, "chunks") for x in kept)], flops=3 * work * chunks + within,
        backward_flops=2 * within + work * (2 * (chunks + later) + 2 * later), workspace_bytes=of_a_chunk,
        backward_workspace_bytes=of_a_chunk + (pairs.nbytes if many else of_a_chunk),
    )  # fmt: skip
    return out
