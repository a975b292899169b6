"""flash-linear-attention: the gated delta rule and the gated norm behind it as kernels around which little is kept.

fla-core 0.3.2, 0.4.0, 0.4.2, 0.5.0, 0.5.2 and 0.6.0 ops/gated_delta_rule/chunk.py, ops/kda, modules/norm:

    rule    keeps queries and keys of length 1 and what divided them, values, beta, decays added up within chunks, and a
            triangle of 64 columns a position; states of chunks and corrected values are made again in backward
    Kimi    (from 0.5 on) the same with decays for every channel, as they came too, and two such triangles
    norm    keeps its input, the gate and 1/rms; the weight's gradient is added up by every multiprocessor for itself

Arguments of a kernel that do not lie row by row are copied (`input_guard`), which split-off queries, keys and values
never do. transformers' classes hand queries and keys over as they are from 5.23 on, before that repeated for every head
of values; they take the norm before 5.15 alone (type_facts.csv). Not told apart: FlashQLA and TileLang in place of
Triton, short convolutions of the package's own (OLMo hybrid before 5.15, Kimi Linear's own repository), gates in the
kernel, states by context parallelism, Kimi's rule before 0.5 (0.4.0 takes a fifth more in backward).
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, chunks_of, probe, product
from vramwise.models.autograd.tensor import ITEM_BYTES, Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.layers.kimi_delta import KimiDeltaRule
from vramwise.models.lowering import Lowering
from vramwise.models.operations.delta_rule import (
    GatedDeltaRule,
    GatedHeadNorm,
    beta_and_decay,
    gated_head_norm,
    in_heads,
    repeated,
)

RULE = "the gated delta rule"
NORM = "its gated norm"
CHUNK = 64
TILE_OF_KEYS = 128
"""Columns of keys that one program works on, each with decays' gradients of its own: an H100's; others have fewer."""
TILE_OF_CHANNELS = 32
MULTIPROCESSORS = 132
"""An H100's; a norm of 128 columns takes 67 KB by it."""
NORM_ACTIVATIONS = frozenset({"silu", "swish", "sigmoid"})


def delta_rule(
    run: Lowering, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> Tensor:
    """(b, s, h·d) -> (b, s, h, v), with fewer heads of queries and keys than of values."""
    beta, decay = beta_and_decay(run, op, beta, decay)
    q, k, v = in_heads(run, op, q, k, v)
    return chunked(run, q, k, v, beta, decay, normalizes=True)


def delta_rule_of_repeated_heads(
    run: Lowering, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor
) -> Tensor:
    """The same with a query and a key for every head of values."""
    beta, decay = beta_and_decay(run, op, beta, decay)
    q, k, v = in_heads(run, op, q, k, v)
    q, k = (repeated(run, x, op.value_heads // op.key_heads) for x in (q, k))
    return chunked(run, q, k, v, beta, decay, normalizes=True)


def chunked(run: Lowering, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, *, normalizes: bool) -> Tensor:
    """`ChunkGatedDeltaRuleFunction`; `normalizes`: it divides queries and keys by their lengths itself."""
    states = _states(run, q, v)
    return _kernel(
        run, q, k, v, beta, decay, normalizes=normalizes, triangles=1,
        forward=_wide(q, v) + 2 * v.nbytes + states,  # w, u, corrected values, states
        backward=_most_in_backward(q, v, beta, decay, states),
    )  # fmt: skip


def kimi_rule(run: Lowering, op: KimiDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """`ChunkKDAFunction` of 0.5 and later, with a decay for every channel of a key."""
    beta = run.tape.unary("sigmoid", beta)
    q, k, v = (run.tape.view(x, *x.shape[:2], op.num_heads, -1) for x in (q, k, v))
    return chunked_by_channel(run, q, k, v, beta, decay)


def chunked_by_channel(run: Lowering, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """Its two products within chunks are kept, not w, u, decayed keys, states and corrected values."""
    states, in_fp32 = _states(run, q, v), ITEM_BYTES["fp32"]
    rates, triangle, channels = (n * in_fp32 for n in (beta.numel, beta.numel * CHUNK, q.numel))
    tiles = -(-q.shape[3] // TILE_OF_CHANNELS)
    # Backward's intra-chunk kernel: w, u, decayed queries and keys, states and corrected values with their gradients;
    # gradients of queries, keys and decays in fp32, twice; of the rates once more for every tile.
    backward = 3 * q.nbytes + 3 * v.nbytes + 2 * states + 2 * triangle + 6 * channels + (2 + tiles) * rates
    return _kernel(
        run, q, k, v, beta, decay, normalizes=True, triangles=2, forward=2 * q.nbytes + 2 * v.nbytes + states,
        backward=backward, keeps_decay=True,
    )  # fmt: skip


def _kernel(
    run: Lowering, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor, *, normalizes: bool, triangles: int,
    forward: Dim, backward: Dim, keeps_decay: bool = False,
) -> Tensor:  # fmt: skip
    """What both functions keep; beside it `forward` bytes, and at most `backward` with the arguments' gradients."""
    tape, inputs = run.tape, (q, k, v, decay, beta)
    copied = [not x.is_contiguous() for x in (q, k, v)]
    own = [tape.new(v.shape, v.dtype, op="contiguous")] if copied[2] else []
    own += [tape.new(decay.shape, "fp32", op="chunk_local_cumsum")]
    own += [tape.new((*beta.shape, CHUNK), k.dtype, op="A") for _ in range(triangles)]
    for x, copies in zip((q, k), copied, strict=False):
        if normalizes or copies:
            own.append(tape.new(x.shape, x.dtype, op="l2norm" if normalizes else "contiguous"))
        if normalizes:
            own.append(tape.new(x.shape[:-1], "fp32", op="rstd"))
    given = [x for x, was in zip((q, k, v), copied, strict=True) if not was and (x is v or not normalizes)]
    given += [beta, decay] if keeps_decay else [beta]
    grad = any(x.requires_grad for x in inputs)
    out = tape.new(v.shape, q.dtype, requires_grad=grad, op="chunked_delta_rule")
    flops, backward_flops = _flops(q, v)
    kept = [(x, "operand") for x in (*own, *given)]
    passing = sum((x.nbytes for x, was in zip((q, k), copied, strict=False) if was and normalizes), start=0)
    tape.record(
        "chunked_delta_rule", inputs, [out, *own], kept, flops=flops, backward_flops=backward_flops,
        workspace_bytes=passing + forward, backward_workspace_bytes=backward - sum(x.nbytes for x in inputs),
    )  # fmt: skip
    return out


def _wide(q: Tensor, v: Tensor) -> Dim:
    """Bytes of what is as wide as keys, for every head of values."""
    return product((*v.shape[:3], q.shape[3])) * ITEM_BYTES[q.dtype]


def _states(run: Lowering, q: Tensor, v: Tensor) -> Dim:
    """Bytes of the states with which chunks begin."""
    chunks = chunks_of(run.sequence, CHUNK) if CHUNK in run.windows_reached else 1
    return run.batch * chunks * v.shape[2] * q.shape[3] * v.shape[3] * ITEM_BYTES[q.dtype]


def _most_in_backward(q: Tensor, v: Tensor, beta: Tensor, decay: Tensor, states: Dim) -> Dim:
    """The fuller of two moments of `chunk_gated_delta_rule_bwd`, gradients included.

    Beside w, u, corrected values and their gradient, states and theirs: what `chunk_bwd_dqkwg` makes for each head of
    values and adds up for those of keys, or `prepare_wy_repr_bwd` after it.
    """
    wide, held, grouped = _wide(q, v), 3 * v.nbytes + 2 * states, q.shape[2] != v.shape[2]
    tiles = -(-q.shape[3] // TILE_OF_KEYS)
    first = 4 * wide + tiles * decay.nbytes + (q.nbytes if grouped else decay.nbytes)
    second = 3 * wide + 2 * q.nbytes + v.nbytes + 2 * decay.nbytes + beta.nbytes + (q.nbytes if grouped else 0)
    return held + (first if probe(first) > probe(second) else second)


def _flops(q: Tensor, v: Tensor) -> tuple[Dim, Dim]:
    """Products of forward and backward: pairs of a chunk, their inverse times keys and values, states read and made.

    Backward makes w, u and the states again before the gradients of all of them.
    """
    rows = product(v.shape[:3])
    keys, values = q.shape[3], v.shape[3]
    again = rows * (2 * CHUNK * (keys + values) + 4 * keys * values)
    forward = again + rows * (2 * CHUNK * (2 * keys + values) + 2 * keys * values)
    return forward, again + 2 * forward


def gated_norm(run: Lowering, op: GatedHeadNorm, x: Tensor, gate: Tensor) -> Tensor:
    """`FusedRMSNormGated`: one kernel, whose output has its input's dtype."""
    if op.function not in NORM_ACTIVATIONS:
        return gated_head_norm(run, op, x, gate)
    tape, (weight,) = run.tape, run.parameters_of(op)
    width = op.parameters[0].shape[0]
    rows, gates = (tape.contiguous(tape.reshape(t, -1, width)) for t in (x, gate))
    grad = any(t.requires_grad for t in (rows, gates, weight))
    out = tape.new(rows.shape, rows.dtype, requires_grad=grad, op="fused_gated_rms_norm")
    rstd = tape.new(rows.shape[:1], "fp32", op="rstd")
    kept = [(rows, "input"), (gates, "gate"), (rstd, "rstd")]
    summed = 0 if weight.dtype == "fp32" else width * ITEM_BYTES["fp32"]
    partial = MULTIPROCESSORS * width * ITEM_BYTES["fp32"] + summed
    inputs = [rows, gates, weight]
    tape.record("fused_gated_rms_norm", inputs, [out, rstd], kept, backward_workspace_bytes=partial)
    return tape.reshape(out, *x.shape[:2], -1)


RECORD = Kernels(
    name="flash-linear-attention",
    overrides=(
        Override(GatedDeltaRule, delta_rule_of_repeated_heads, RULE, fact="repeats_heads"),
        Override(GatedDeltaRule, delta_rule, RULE),
        Override(KimiDeltaRule, kimi_rule, RULE),
        Override(GatedHeadNorm, gated_norm, NORM, fact="gated_norm"),
    ),
    order=7,
    source="fla-core 0.3.2 to 0.6.0 ops/gated_delta_rule/chunk.py, ops/kda/chunk.py, modules/norm/fused_norm_gate.py",
    told_by="transformers",
)
