"""ProphetNet's decoder as transformers 5.23 runs it: beside the text, a stream for each of the tokens that come next.

The streams lie behind one another along the sequence; each attends to the text and to itself.
"""

from __future__ import annotations

from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, HeadedAttention, attention_dropout
from vramwise.models.operations.losses import LOSSES
from vramwise.records import record


@record(kw_only=True, eq=False)
class PredictingStreams(Operation):
    ngram: int


@lowering(PredictingStreams)
def predicting_streams(run: Lowering, op: PredictingStreams, tokens: Tensor) -> Tensor:
    """Tokens with their positions, then each stream's vector with the positions after them."""
    tape, (positions, vectors) = run.tape, run.parameters_of(op)
    here, after = (
        tape.embedding(tape.new((run.batch, run.sequence), "int64", op=name), positions) for name in ("clamp", "add")
    )
    streams = [tape.add(tape.select(vectors, 0), after) for _ in range(op.ngram)]
    return tape.cat([tape.add(tokens, here), *streams], 1)


@record(kw_only=True, eq=False)
class OnlyPredictingStreams(Operation):
    ngram: int


@lowering(OnlyPredictingStreams)
def only_predicting_streams(run: Lowering, op: OnlyPredictingStreams, x: Tensor) -> Tensor:
    """(batch, streams, tokens, width), a view without the text's own."""
    tape, ngram = run.tape, op.ngram
    return tape.view(tape.narrow(x, 1, ngram * run.sequence), run.batch, ngram, run.sequence, x.shape[-1])


@record(kw_only=True, eq=False)
class TextAndStreams(Operation):
    ngram: int


@lowering(TextAndStreams)
def text_and_streams(run: Lowering, op: TextAndStreams, x: Tensor) -> tuple[Tensor, Tensor]:
    """The text's hidden states, a view, and the streams', copied: (batch, streams, tokens, width)."""
    text, *streams = run.tape.chunk(x, 1 + op.ngram, 1)
    return text, run.tape.transpose(run.tape.stack(streams, 2), 1, 2)


@record(kw_only=True, eq=False)
class NgramAttention(HeadedAttention):
    ngram: int
    dropout: float


@lowering(NgramAttention)
def ngram_attention(
    run: Lowering, op: NgramAttention, q: Tensor, k: Tensor, v: Tensor, near: Tensor, nearer: Tensor
) -> tuple[Tensor, Tensor]:
    """The text's attention and that of the streams: (batch, 1 or streams, tokens, width) each."""
    tape, batch, tokens, ngram = run.tape, run.batch, run.sequence, op.ngram
    heads, width = op.num_heads, op.outputs[0].width

    def split(piece: Tensor) -> tuple[Tensor, ...]:
        by_head = tape.view(piece, batch, (1 + ngram) * tokens, heads, width // heads)
        return tape.chunk(tape.clone_contiguous(tape.transpose(by_head, 1, 2)), 1 + ngram, 2)

    pieces = split(tape.scale(q)), split(k), split(v)
    text = _text_attention(run, op, near, *(piece[0] for piece in pieces))
    streams = _stream_attention(run, op, nearer, *pieces)
    return tape.reshape(text, batch, 1, tokens, width), tape.reshape(streams, batch, ngram, tokens, width)


class JoinedStreams(Operation):
    __slots__ = ()


@lowering(JoinedStreams)
def joined_streams(run: Lowering, op: JoinedStreams, text: Tensor, streams: Tensor) -> Tensor:
    """The text and its streams behind one another again."""
    joined = run.tape.cat([text, streams], 1)
    return run.tape.view(joined, run.batch, joined.shape[1] * run.sequence, joined.shape[-1])


def _text_attention(run: Lowering, op: NgramAttention, near: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    tape, batch, heads, tokens = run.tape, run.batch, op.num_heads, run.sequence
    scores = tape.einsum("bntc,bncs->bnts", q, tape.transpose(k, 2, 3))
    scored = tape.view(near, batch, tokens, near.shape[-1] // heads, heads)
    positions = _scored_positions(run, tape.permute(scored, 0, 3, 1, 2), batch * heads * tokens, tokens)
    scores = tape.add(scores, tape.view(positions, batch, heads, tokens, tokens))
    scores = tape.add(scores, tape.new((batch, heads, tokens, tokens), run.hidden_dtype, op="mask"))
    weights = _weights(run, op, scores)
    return tape.transpose(tape.einsum("bntc,bncs->bnts", weights, v), 1, 2)


def _stream_attention(
    run: Lowering, op: NgramAttention, near: Tensor, q: tuple[Tensor, ...], k: tuple[Tensor, ...], v: tuple[Tensor, ...]
) -> Tensor:
    tape, batch, heads, tokens = run.tape, run.batch, op.num_heads, run.sequence
    ngram = op.ngram
    queries = tape.stack(q[1:], 1)
    keys = tape.stack([tape.cat([k[0], own], 2) for own in k[1:]], 1)
    values = tape.cat([tape.unsqueeze(tape.cat([v[0], own], 2), 2) for own in v[1:]], 2)
    scores = tape.einsum("bnhtc,bnhsc->bnhts", queries, keys)
    scored = tape.view(near, batch, ngram, tokens, near.shape[-1] // heads, heads)
    rows = ngram * batch * heads * tokens
    positions = _scored_positions(run, tape.permute(scored, 0, 2, 1, 4, 3), rows, 2 * tokens)
    scores = tape.add(scores, tape.view(positions, batch, ngram, heads, tokens, 2 * tokens))
    mask = tape.new((batch, ngram, heads, tokens, 2 * tokens), run.hidden_dtype, op="mask")
    weights = _weights(run, op, tape.add(scores, tape.to(mask, scores.dtype)))
    mixed = tape.einsum("bnhts,bnhsc->bnhtc", weights, tape.transpose(values, 1, 2))
    return tape.transpose(mixed, 2, 3)


def _scored_positions(run: Lowering, scored: Tensor, rows: Dim, keys: Dim) -> Tensor:
    """The scores of every pair's bucket; indices are repeated for every head, and kept."""
    tape = run.tape
    index = tape.new((rows, keys), "int64", op="_to_copy")
    return tape.gather(tape.reshape(scored, rows, scored.shape[-1]), index)


def _weights(run: Lowering, op: NgramAttention, scores: Tensor) -> Tensor:
    tape = run.tape
    return tape.dropout(tape.to(tape.softmax(scores, "fp32"), scores.dtype), attention_dropout(run, op.dropout))


CONTRACTED = AttentionStyle("contracted")


@CONTRACTED.path("eager")
def _eager_contracted(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention by `einsum` of queries scaled before, with a mask only of padding."""
    tape = run.tape
    scores = tape.einsum("bsij,bsjk->bsik", tape.scale(q), tape.transpose(k, 2, 3))
    if run.execution.padding:
        scores = tape.add(scores, tape.new((run.batch, k.shape[1], 1, k.shape[2]), run.hidden_dtype, op="mask"))
    weights = tape.dropout(tape.softmax(scores), attention_dropout(run, op.dropout))
    return tape.transpose(tape.einsum("bsij,bsjk->bsik", weights, v), 1, 2)


@LOSSES.named("ngram-lm")
def ngram_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """Cross entropy in fp32 over a copy of every stream's logits."""
    tape, (batch, ngram, tokens, width) = run.tape, logits.shape
    with tape.inside("loss"):
        rows = tape.view(tape.contiguous(tape.transpose(logits, 0, 1)), -1, width)
        labels = tape.new((ngram * batch * tokens,), "int64", op="new_zeros")
        return tape.cross_entropy(tape.to(rows, "fp32"), labels)


@LOSSES.named("smoothed-ngram-lm")
def smoothed_ngram_lm_loss(run: Lowering, logits: Tensor) -> Tensor:
    """The same and the mean of all log-probabilities of the tokens that count, which a mask picks out."""
    tape = run.tape
    loss = ngram_lm_loss(run, logits)
    with tape.inside("loss"):
        rows = loss.requires_grad
        counted = tape.new((product(logits.shape[:-1]),), "bool", op="ne")
        picked = tape.new(counted.shape, "fp32", requires_grad=rows, op="index")
        tape.record("index", [loss, counted], [picked], [(counted, "indices")])
    return tape.add(loss, loss)
