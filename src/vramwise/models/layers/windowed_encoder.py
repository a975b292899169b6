"""LED's encoder: tokens padded to whole windows, layers that attend to a window."""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, chunks_of
from vramwise.models.autograd.tensor import Tensor, contiguous_strides
from vramwise.models.blocks import Block, Operation
from vramwise.models.builder import BlockBuilder
from vramwise.models.layers.bart_layers import Stack, half
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention, attention_dropout
from vramwise.models.operations.encoders import BoundFp16
from vramwise.models.operations.simple import Embedding, Hold
from vramwise.records import record


def encoder_embedding(s: Stack, window: int) -> Block:
    """Tokens, padded to whole windows, plus positions; norm, dropout."""
    b, c = BlockBuilder("model.encoder", part="embedding"), s.c
    width, owner = c.hidden_size, s.tied("model.shared.weight")
    table = b.parameter("embed_tokens", "weight", (c.vocab_size, width), shard="vocab", tied_to=owner)
    (x,) = b.op(Embedding(ids="encoder_input_ids"), "embed_tokens", [], [width], [table])
    positions = b.parameter("embed_positions", "weight", (c.size("max_position_embeddings"), width))
    x = b.layer_norm(b.unary(WholeWindows(chunk_size=window), x, "", [table, positions]), "layernorm_embedding")
    return b.build(hidden=b.dropout(x, c.number("dropout")))


def encoder_layer(s: Stack, index: int, window: int) -> Block:
    """Windowed attention and a feed-forward, each with a residual and a norm after it."""
    b = BlockBuilder(f"model.encoder.layers.{index}", layer=index, part="attention")
    x, heads = b.input("hidden", s.c.hidden_size), s.c.size("encoder_attention_heads")
    if x.width % heads:
        raise s.c.error(f"encoder_attention_heads ({heads}) does not divide d_model ({x.width})")
    module, read = "self_attn.longformer_self_attn", b.unary(TokensFirst(), x)
    pieces = [b.linear(read, f"{module}.{name}", x.width, bias=True) for name in ("query", "key", "value")]
    dropout = float(s.c.number("attention_dropout"))
    (mixed,) = b.op(
        WindowAttention(num_heads=heads, half_window=window // 2, dropout=dropout), module, pieces, [x.width]
    )
    aside = BlockBuilder(b.name, b.layer, b.part)
    for name in ("query", "key", "value"):
        aside.linear(aside.value(x.width), f"{module}.{name}_global", x.width, bias=True)
    mixed = b.unary(Hold(), mixed, module, [parameter for op in aside.ops for parameter in op.parameters])
    mixed = b.linear(b.unary(TokensFirst(), mixed), "self_attn.output", x.width, bias=True, shard="row")
    x = b.layer_norm(b.add(x, b.dropout(mixed, s.c.number("dropout"))), "self_attn_layer_norm")
    b.part = "mlp"
    return b.build(hidden=b.unary(BoundFp16(), half(b, s, x, "final")))


def encoder_end(s: Stack, window: int) -> Block:
    """What the decoder reads: the tokens without the padding of the last window."""
    b = BlockBuilder("")
    return b.build(encoder=b.unary(WithoutWindowPadding(chunk_size=window), b.input("hidden", s.c.hidden_size)))


# -- as transformers 5.23 runs it -------------------------------------------------------------------------
# No token attends globally, as in a batch without a `global_attention_mask`.


@record(kw_only=True, eq=False)
class WholeWindows(Operation):
    chunk_size: int


@lowering(WholeWindows)
def whole_windows(run: Lowering, op: WholeWindows, x: Tensor) -> Tensor:
    """Tokens, embedded, and embeddings of as many padding tokens as fill the last window; positions are added."""
    tape, window = run.tape, op.chunk_size
    table, positions = run.parameters_of(op)
    padded: Dim = (chunks_of(run.source, window) if window in run.windows_reached else 1) * window
    if window not in run.chunks_filled:
        ids = tape.new((run.batch, padded - run.source), "int64", op="new_full")
        behind = tape.embedding(ids, table)
        joined = tape.new((run.batch, padded, x.shape[-1]), x.dtype, requires_grad=x.requires_grad, op="cat")
        tape.record("cat", [x, behind], [joined])
        x = joined
    run.tables["padding mask"] = (tape.new((run.batch, padded), "bool", op="lt"),)
    x = tape.add(x, tape.embedding(tape.new((padded,), "int64", op="arange"), positions))
    shape = (run.batch, padded, x.shape[-1])
    return tape.as_strided(x, shape, contiguous_strides(shape))


@record(kw_only=True, eq=False)
class WithoutWindowPadding(Operation):
    chunk_size: int


@lowering(WithoutWindowPadding)
def without_window_padding(run: Lowering, op: WithoutWindowPadding, x: Tensor) -> Tensor:
    """The tokens that were given."""
    x = run.tape.narrow(x, 1, run.source)
    if op.chunk_size not in run.chunks_filled:
        return x
    return run.tape.as_strided(x, x.shape, contiguous_strides(x.shape))


class TokensFirst(Operation):
    __slots__ = ()


@lowering(TokensFirst)
def tokens_first(run: Lowering, op: TokensFirst, x: Tensor) -> Tensor:
    """(batch, tokens, ...) -> (tokens, batch, ...) or back, a view."""
    return run.tape.transpose(x, 0, 1)


@record(kw_only=True, eq=False)
class WindowAttention(HeadedAttention):
    half_window: int
    dropout: float


@lowering(WindowAttention)
def window_attention(run: Lowering, op: WindowAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(tokens, batch, width) thrice -> (tokens, batch, width); `half_window` tokens on either side are seen."""
    tape, half = run.tape, op.half_window
    tokens, batch, width = q.shape
    q = tape.scale(q)
    q, k, v = (_rows_of_heads(run, x, op.num_heads) for x in (q, k, v))
    scores = _window_scores(run, q, k, op.num_heads, half)
    weights = tape.softmax(scores, "fp32")
    hidden = tape.unsqueeze(tape.unsqueeze(run.tables["padding mask"][0], -1), -1)
    weights = tape.to(tape.masked_fill(weights, hidden), scores.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    mixed = _window_values(run, weights, v, half)
    mixed = tape.permute(tape.view(mixed, batch, -1, tokens, q.shape[-1]), 2, 0, 1, 3)
    return tape.reshape(mixed, tokens, batch, width)


def _rows_of_heads(run: Lowering, x: Tensor, heads: int) -> Tensor:
    """(tokens, batch, heads · d) -> (batch · heads, tokens, d)."""
    tape, (tokens, batch, width) = run.tape, x.shape
    assert isinstance(width, int)
    split = tape.view(x, tokens, batch, heads, width // heads)
    return tape.reshape(tape.permute(split, 1, 2, 0, 3), batch * heads, tokens, width // heads)


def _overlapping(run: Lowering, x: Tensor, length: int, step: int) -> Tensor:
    """(rows, tokens, d) -> (rows, chunks, length, d), a view in which a chunk begins every `step` tokens."""
    rows, tokens, width = x.shape
    chunks = (tokens - length) // step + 1
    by_row, by_token, by_column = x.strides
    shape, strides = (rows, chunks, length, width), (by_row, by_token * step, by_token, by_column)
    return run.tape.as_strided(x, shape, strides)


def _window_scores(run: Lowering, q: Tensor, k: Tensor, heads: int, half: int) -> Tensor:
    """(batch, tokens, heads, 2 · half + 1): products of chunks, their diagonals copied into columns."""
    tape, (rows, tokens, _) = run.tape, q.shape
    chunks = tape.einsum("bcxd,bcyd->bcxy", *(_overlapping(run, x, 2 * half, half) for x in (q, k)))
    chunks = tape.pad(chunks, 2, 1)
    diagonals = tape.new((rows, tokens // half, half, 2 * half + 1), chunks.dtype, op="new_zeros")
    filled = tape.add_(diagonals, tape.narrow(tape.narrow(chunks, 1, tokens // half), 2, half))
    filled = tape.transpose(tape.view(filled, run.batch, heads, tokens, 2 * half + 1), 1, 2)
    for _ in ("beginning", "end"):
        ends = tape.narrow(tape.narrow(filled, 1, half), 3, half + 1)
        outside = tape.new(ends.shape, "bool", op="_to_copy")
        tape.where(outside, tape.like(ends, requires_grad=False, op="full_like"), ends)
    return filled


def _window_values(run: Lowering, weights: Tensor, v: Tensor, half: int) -> Tensor:
    """(batch · heads, chunks, half, d): weights laid on diagonals, times the values of three half windows."""
    tape, (rows, tokens, _) = run.tape, v.shape
    chunks = tokens // half
    weights = tape.reshape(tape.transpose(weights, 1, 2), rows, chunks, half, 2 * half + 1)
    wide = tape.pad(weights, 3, half + 1)
    by_row, by_chunk = wide.strides[:2]
    shape, strides = (rows, chunks, half, 3 * half), (by_row, by_chunk, 3 * half + 1, 1)
    diagonals = tape.as_strided(wide, shape, strides)
    return tape.einsum("bcwd,bcdh->bcwh", diagonals, _overlapping(run, tape.pad(v, 1, 2 * half), 3 * half, half))
