"""What llama.cpp runs for gated delta networks (src/models/delta-net-base.cpp, qwen35.cpp, qwen35moe.cpp, 0c1e57098).

The scan is one fused operation, whose result holds the new states behind the outputs; states are read and written once
a batch, the convolution's before the scan's.
"""

from __future__ import annotations

from vramwise.errors import UndescribedOperationError
from vramwise.models.operations.delta_rule import DeltaPieces, Flattened, GatedDeltaRule, GatedHeadNorm
from vramwise.models.operations.mixers import CausalConv1d, ChannelsFirst, ChannelsLast, PaddingZeroed
from vramwise.serving.llama_cpp.ggml.build import Build, ggml_lowering
from vramwise.serving.llama_cpp.ggml.tensors import (
    BY_SEQUENCE,
    F32,
    Tensor,
    get_rows,
    like,
    matmul,
    permute,
    reshape,
    shape,
    stored,
    view,
)


@ggml_lowering(PaddingZeroed)
def layer_start(b: Build, op: PaddingZeroed, x: Tensor) -> Tensor:
    """Batches have no padding; the norm at the start of a layer enters the graph before its states."""
    b.graph.expand(x)
    return x


@ggml_lowering(ChannelsFirst, ChannelsLast)
def same(b: Build, op: ChannelsFirst, x: Tensor) -> Tensor:
    """The convolution turns the axes itself."""
    return x


@ggml_lowering(Flattened)
def flattened(b: Build, op: Flattened, x: Tensor) -> Tensor:
    return Tensor("CONT", shape(x.ne[0] * x.ne[1], x.ne[2]), sources=(x,))


def _states(b: Build, width: int) -> tuple[Tensor, Tensor]:
    """A layer's states, and those of the batch's sequences; a new sequence's are cleared, others moved (build_rs)."""
    sequences = b.batch.sequences
    kept = stored(shape(width, sequences), F32, b.cache_device, weight=False)
    rows = reshape(kept, width, sequences)
    cleared = view(rows, shape(width), kept.nb)
    b.graph.expand(Tensor("SCALE", cleared.ne, sources=(cleared,), root=kept, nb=kept.nb))
    own, others = b.state_places()
    found = get_rows(rows, own)
    b.graph.expand(found)
    _write(b, get_rows(rows, others), kept)
    return kept, found


def _write(b: Build, new: Tensor, kept: Tensor) -> None:
    target = view(kept, (kept.ne[0], new.ne[1] and kept.ne[1], 1, 1), kept.nb)
    b.graph.expand(Tensor("CPY", target.ne, sources=(new, target), root=kept, nb=kept.nb))


@ggml_lowering(CausalConv1d)
def convolution(b: Build, op: CausalConv1d, x: Tensor) -> Tensor:
    """The last columns of the batch before, then this batch's (build_conv_state). Raises UndescribedOperationError."""
    if len(op.parameters) > 1 or op.function is None:
        raise UndescribedOperationError("a convolution with a bias or without an activation has no ggml graph here")
    channels, _, width = op.parameters[0].shape
    sequences = b.batch.sequences
    tokens = x.ne[1] // sequences
    kept, rows = _states(b, (width - 1) * channels)
    columns = permute(reshape(x, channels, tokens, sequences), 1, 0, 2, 3)
    before = reshape(rows, width - 1, channels, sequences)
    joined = Tensor("CONCAT", shape(width - 1 + tokens, channels, sequences), sources=(before, columns))
    _write(b, view(joined, before.ne, joined.nb), kept)
    made = Tensor(
        "SSM_CONV", shape(channels, tokens, sequences), sources=(joined, b.weight(width, channels, of=op.parameters[0]))
    )
    return like("UNARY", made)


@ggml_lowering(DeltaPieces)
def delta_pieces(b: Build, op: DeltaPieces, mixed: Tensor, numbers: Tensor) -> tuple[Tensor, ...]:
    """Qwen3-Next's two products are three in the file; what decay and beta come from is copied out of the last."""
    normed, rows = mixed.sources[1], b.batch.sequences
    tokens, width = normed.ne[1] // rows, normed.ne[0]
    joint, names = b.parameter("in_proj_qkvz.weight"), ("attn_qkv", "attn_gate")
    kept, gate = (
        matmul(b.weight(width, value.width, of=joint, name=name), normed)
        for value, name in zip(op.outputs[:2], names, strict=True)
    )
    heads = op.outputs[2].width
    apart = reshape(numbers, 2 * heads // op.key_heads, op.key_heads, tokens, rows)
    part = view(apart, (heads // op.key_heads, op.key_heads, tokens, rows), apart.nb)
    beta = Tensor("CONT", part.ne, sources=(part,))
    other = view(apart, part.ne, apart.nb)
    return kept, gate, beta, Tensor("CONT", shape(heads, tokens, rows), sources=(other,))


@ggml_lowering(GatedDeltaRule)
def delta_rule(b: Build, op: GatedDeltaRule, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, decay: Tensor) -> Tensor:
    """build_layer_attn_linear, build_recurrent_attn: as many new states as a draft may take back, and one."""
    sequences, heads = b.batch.sequences, op.value_heads
    tokens, width = q.ne[1], v.ne[0] // heads
    kept, rows = _states(b, width * width * heads)
    state = reshape(rows, width, width, heads, sequences)
    q, k = (like("SCALE", like("RMS_NORM", _by_head(x, op.key_heads))) for x in (q, k))
    copied = decay.op == "CONT"
    if copied and heads != op.key_heads:  # qwen3next.cpp repeats them beside the fused scan too
        q, k = (_repeated(x, heads // op.key_heads) for x in (q, k))
    gate = like("ADD", decay if copied else reshape(decay, heads, tokens, sequences), b.weight(heads))
    gate = reshape(like("MUL", like("UNARY", gate), b.weight(heads)), 1, heads, tokens, sequences)
    if copied:
        beta = reshape(like("UNARY", beta), 1, heads, tokens, sequences)
    else:
        beta = like("UNARY", reshape(beta, 1, heads, tokens, sequences))
    new_rows = width * sequences * b.batch.states_kept
    made = Tensor("GATED_DELTA_NET", shape(width * heads, tokens * sequences + new_rows),
                  sources=(q, k, _by_head(v, heads), gate, beta, state))  # fmt: skip
    _write(b, view(made, shape(width, width, heads, sequences), _strides(width, heads, width)), kept)
    return view(made, shape(width, heads, tokens, sequences), _strides(width, heads, tokens))


def _repeated(x: Tensor, times: int) -> Tensor:
    width, heads, tokens, sequences = x.ne
    apart = reshape(x, width, 1, heads, tokens * sequences)
    made = Tensor("REPEAT", (width, times, heads, tokens * sequences), sources=(apart,))
    return reshape(made, width, times * heads, tokens, sequences)


def _by_head(x: Tensor, heads: int) -> Tensor:
    width = x.ne[0] // heads
    whole = x.sources[0] if x.op == "VIEW" else x
    return view(whole, (width, heads, x.ne[1], x.ne[2]), (x.nb[0], x.nb[0] * width, x.nb[1], x.nb[2]))


def _strides(width: int, heads: int, tokens: int) -> tuple[int, int, int, int]:
    return F32, F32 * width, F32 * width * heads, F32 * width * heads * tokens


@ggml_lowering(GatedHeadNorm)
def gated_head_norm(b: Build, op: GatedHeadNorm, x: Tensor, gate: Tensor) -> Tensor:
    """build_norm_gated; the rest of the layer's product keeps sequences apart."""
    width, heads, tokens, sequences = x.ne
    normed = like("MUL", like("RMS_NORM", x), b.weight(width))
    made = like("MUL", normed, like("UNARY", reshape(gate, width, heads, tokens, sequences)))
    made = reshape(made, width * heads, tokens, sequences)
    made.mark = BY_SEQUENCE
    return made
