"""ProphetNet's decoder as transformers 5.23 runs it: beside the text, a stream for each of the tokens that come next.

The streams lie behind one another along the sequence; each attends to the text and to itself.
"""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim, product
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class NgramStreamPaths:
    """Streams made, attended, read; relative positions that a product of the hidden states scores."""

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    hidden_dtype: str
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]

    def predicting_streams(self, op: Op, tokens: Tensor) -> Tensor:
        """Tokens with their positions, then each stream's vector with the positions after them."""
        tape, (positions, vectors) = self.tape, self.parameters_of(op)
        here, after = (
            tape.embedding(tape.new((self.batch, self.sequence), "int64", op=name), positions)
            for name in ("clamp", "add")
        )
        streams = [tape.add(tape.select(vectors, 0), after) for _ in range(op.settings["ngram"])]
        return tape.cat([tape.add(tokens, here), *streams], 1)

    def only_predicting_streams(self, op: Op, x: Tensor) -> Tensor:
        """(batch, streams, tokens, width), a view without the text's own."""
        tape, ngram = self.tape, op.settings["ngram"]
        return tape.view(tape.narrow(x, 1, ngram * self.sequence), self.batch, ngram, self.sequence, x.shape[-1])

    def text_and_streams(self, op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
        """The text's hidden states, a view, and the streams', copied: (batch, streams, tokens, width)."""
        text, *streams = self.tape.chunk(x, 1 + op.settings["ngram"], 1)
        return text, self.tape.transpose(self.tape.stack(streams, 2), 1, 2)

    def ngram_attention(
        self, op: Op, q: Tensor, k: Tensor, v: Tensor, near: Tensor, nearer: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The text's attention and that of the streams: (batch, 1 or streams, tokens, width) each."""
        tape, batch, tokens, ngram = self.tape, self.batch, self.sequence, op.settings["ngram"]
        heads, width = op.settings["num_heads"], op.outputs[0].width

        def split(piece: Tensor) -> tuple[Tensor, ...]:
            by_head = tape.view(piece, batch, (1 + ngram) * tokens, heads, width // heads)
            return tape.chunk(tape.clone_contiguous(tape.transpose(by_head, 1, 2)), 1 + ngram, 2)

        pieces = split(tape.scale(q)), split(k), split(v)
        text = self._text_attention(op, near, *(piece[0] for piece in pieces))
        streams = self._stream_attention(op, nearer, *pieces)
        return tape.reshape(text, batch, 1, tokens, width), tape.reshape(streams, batch, ngram, tokens, width)

    def joined_streams(self, op: Op, text: Tensor, streams: Tensor) -> Tensor:
        """The text and its streams behind one another again."""
        joined = self.tape.cat([text, streams], 1)
        return self.tape.view(joined, self.batch, joined.shape[1] * self.sequence, joined.shape[-1])

    def _text_attention(self, op: Op, near: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        tape, batch, heads, tokens = self.tape, self.batch, op.settings["num_heads"], self.sequence
        scores = tape.einsum("bntc,bncs->bnts", q, tape.transpose(k, 2, 3))
        scored = tape.view(near, batch, tokens, near.shape[-1] // heads, heads)
        positions = self._scored_positions(tape.permute(scored, 0, 3, 1, 2), batch * heads * tokens, tokens)
        scores = tape.add(scores, tape.view(positions, batch, heads, tokens, tokens))
        scores = tape.add(scores, tape.new((batch, heads, tokens, tokens), self.hidden_dtype, op="mask"))
        weights = self._weights(op, scores)
        return tape.transpose(tape.einsum("bntc,bncs->bnts", weights, v), 1, 2)

    def _stream_attention(
        self, op: Op, near: Tensor, q: tuple[Tensor, ...], k: tuple[Tensor, ...], v: tuple[Tensor, ...]
    ) -> Tensor:
        tape, batch, heads, tokens = self.tape, self.batch, op.settings["num_heads"], self.sequence
        ngram = op.settings["ngram"]
        queries = tape.stack(q[1:], 1)
        keys = tape.stack([tape.cat([k[0], own], 2) for own in k[1:]], 1)
        values = tape.cat([tape.unsqueeze(tape.cat([v[0], own], 2), 2) for own in v[1:]], 2)
        scores = tape.einsum("bnhtc,bnhsc->bnhts", queries, keys)
        scored = tape.view(near, batch, ngram, tokens, near.shape[-1] // heads, heads)
        rows = ngram * batch * heads * tokens
        positions = self._scored_positions(tape.permute(scored, 0, 2, 1, 4, 3), rows, 2 * tokens)
        scores = tape.add(scores, tape.view(positions, batch, ngram, heads, tokens, 2 * tokens))
        mask = tape.new((batch, ngram, heads, tokens, 2 * tokens), self.hidden_dtype, op="mask")
        weights = self._weights(op, tape.add(scores, tape.to(mask, scores.dtype)))
        mixed = tape.einsum("bnhts,bnhsc->bnhtc", weights, tape.transpose(values, 1, 2))
        return tape.transpose(mixed, 2, 3)

    def _scored_positions(self, scored: Tensor, rows: Dim, keys: Dim) -> Tensor:
        """The scores of every pair's bucket; indices are repeated for every head, and kept."""
        tape = self.tape
        index = tape.new((rows, keys), "int64", op="_to_copy")
        return tape.gather(tape.reshape(scored, rows, scored.shape[-1]), index)

    def _weights(self, op: Op, scores: Tensor) -> Tensor:
        tape = self.tape
        return tape.dropout(tape.to(tape.softmax(scores, "fp32"), scores.dtype), self.attention_dropout(op))

    def _eager_contracted(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention by `einsum` of queries scaled before, with a mask only of padding."""
        tape = self.tape
        scores = tape.einsum("bsij,bsjk->bsik", tape.scale(q), tape.transpose(k, 2, 3))
        if self.execution.padding:
            scores = tape.add(scores, tape.new((self.batch, k.shape[1], 1, k.shape[2]), self.hidden_dtype, op="mask"))
        weights = tape.dropout(tape.softmax(scores), self.attention_dropout(op))
        return tape.transpose(tape.einsum("bsij,bsjk->bsik", weights, v), 1, 2)

    def ngram_lm_loss(self, logits: Tensor) -> Tensor:
        """Cross entropy in fp32 over a copy of every stream's logits."""
        tape, (batch, ngram, tokens, width) = self.tape, logits.shape
        with tape.inside("loss"):
            rows = tape.view(tape.contiguous(tape.transpose(logits, 0, 1)), -1, width)
            labels = tape.new((ngram * batch * tokens,), "int64", op="new_zeros")
            return tape.cross_entropy(tape.to(rows, "fp32"), labels)

    def smoothed_ngram_lm_loss(self, logits: Tensor) -> Tensor:
        """The same and the mean of all log-probabilities of the tokens that count, which a mask picks out."""
        tape = self.tape
        loss = self.ngram_lm_loss(logits)
        with tape.inside("loss"):
            rows = loss.requires_grad
            counted = tape.new((product(logits.shape[:-1]),), "bool", op="ne")
            picked = tape.new(counted.shape, "fp32", requires_grad=rows, op="index")
            tape.record("index", [loss, counted], [picked], [(counted, "indices")])
        return tape.add(loss, loss)
