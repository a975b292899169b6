"""DeBERTa 1 and 2 as transformers 5.23 runs them: scores of contents beside scores of contents against distances."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution
from vramwise.models.profiles.activations import apply_activation


class DebertaPaths:
    """`DisentangledSelfAttention` of both versions, the embeddings of distances, version 2's convolution.

    Indices: b batch, h heads, s tokens, r distances (twice the farthest one that is told apart), d width of a head.
    """

    tape: Tape
    batch: Dim
    sequence: Dim
    execution: Execution
    windows_reached: frozenset[int]
    tables: dict[str, tuple[Tensor, ...]]
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]

    def token_mask(self) -> Tensor:
        """The mask of tokens (b, s): made once as fp32 ones where none is passed."""
        if "token mask" not in self.tables:
            kind = "int64" if self.execution.padding else "fp32"
            self.tables["token mask"] = (self.tape.new((self.batch, self.sequence), kind, op="ones"),)
        return self.tables["token mask"][0]

    def times_mask(self, op: Op, x: Tensor) -> Tensor:
        """A product with the mask of tokens in the dtype of `x`, which backward keeps."""
        return self.tape.mul(x, self.tape.to(self.tape.unsqueeze(self.token_mask(), -1), x.dtype))

    # -- distances -----------------------------------------------------------------------------------------

    def distance_table(self, op: Op) -> Tensor:
        """The table of distances itself, or its layer norm where it has one; no gradient where no score reads it."""
        table, *norm = (p if op.settings["read"] else self.tape.detached(p) for p in self.parameters_of(op))
        return self.tape.layer_norm(table, *norm) if norm else table

    def distances_within(self, op: Op, table: Tensor) -> Tensor:
        """Rows of the distances that this sequence has, as a batch of one: no leaf, so that autocast casts it anew."""
        farthest, tape = op.settings["chunk_size"], self.tape
        rows = 2 * (farthest if farthest in self.windows_reached else self.sequence)
        return tape.unsqueeze(tape.unleafed(tape.narrow(table, 0, rows)), 0)

    def distances_all(self, op: Op, table: Tensor) -> Tensor:
        """Every row, as a batch of one."""
        return self.tape.unsqueeze(self.tape.unleafed(table), 0)

    def linear_aside(self, op: Op, x: Tensor) -> tuple[()]:
        """A projection that is computed and not read: it leaves nothing for backward."""
        tape = self.tape
        tape.linear(*(tape.detached(part) for part in tape.autocast_low(x, *self.parameters_of(op))))
        return ()

    # -- version 1 -----------------------------------------------------------------------------------------

    def biased_qkv(self, op: Op, fused: Tensor) -> tuple[Tensor, ...]:
        """Each head's q, k, v beside each other, biases on q and v."""
        tape, width = self.tape, op.outputs[0].width
        split = tape.view(fused, *fused.shape[:-1], op.settings["num_heads"], 3 * width)
        q, k, v = tape.chunk(tape.transpose(split, 1, 2), 3)
        biases = (
            tape.transpose(tape.view(bias, 1, 1, op.settings["num_heads"], width), 1, 2)
            for bias in self.parameters_of(op)
        )
        return tape.add(q, next(biases)), k, tape.add(v, next(biases))

    def _eager_deberta(self, op: Op, q: Tensor, k: Tensor, v: Tensor, *distances: Tensor) -> Tensor:
        """Queries divided by a scalar tensor, scores filled where a table of pairs says so."""
        tape = self.tape
        q = tape.div(q, tape.new((), q.dtype, op="sqrt"))
        scores = tape.matmul(q, tape.transpose(k, 2, 3))
        biases = [
            self._gathered(self._against_distances(op, kind, q if kind == "c2p" else k, rows), kind)
            for kind, rows in zip(op.settings["compared"], distances, strict=True)
        ]
        scores = tape.masked_fill(self._added(scores, biases), self._pairs(q, k))
        weights = tape.dropout(tape.softmax(scores), self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def _against_distances(self, op: Op, kind: str, x: Tensor, rows: Tensor) -> Tensor:
        """(b, h, s, d) times the projected distances (1, r, h·d): (b, h, s, r)."""
        tape, heads = self.tape, op.settings["num_heads"]
        rows = tape.transpose(tape.view(rows, 1, rows.shape[1], heads, x.shape[-1]), 1, 2)
        if kind == "p2c":
            rows = tape.div_(rows, tape.new((), "fp32", op="sqrt"))
        return tape.matmul(x, tape.transpose(rows, 2, 3))

    # -- version 2 -----------------------------------------------------------------------------------------

    def _eager_deberta_v2(self, op: Op, q: Tensor, k: Tensor, v: Tensor, *distances: Tensor) -> Tensor:
        """As version 1 with the heads folded into the batch and the keys divided."""
        tape = self.tape
        batch, heads, s, d = q.shape
        pairs = self._pairs(q, k)
        q, k, v = (tape.view(tape.contiguous(x), batch * heads, x.shape[2], d) for x in (q, k, v))
        scaled = tape.div(tape.transpose(k, 1, 2), tape.new((), q.dtype, op="sqrt"))
        scores = tape.matmul(q, scaled)
        biases = []
        for kind, rows in zip(op.settings["compared"], distances, strict=True):
            rows = tape.transpose(tape.view(rows, 1, rows.shape[1], heads, d), 1, 2)
            rows = tape.repeat_rows(tape.view(tape.contiguous(rows), heads, rows.shape[2], d), batch)
            compared = tape.matmul(q if kind == "c2p" else k, tape.transpose(rows, 1, 2))
            gathered = self._gathered(compared, kind)
            biases.append(tape.div(gathered, tape.new((), gathered.dtype, op="sqrt")))
        scores = tape.view(self._added(scores, biases), batch, heads, s, s)
        weights = tape.dropout(tape.softmax(tape.masked_fill(scores, pairs)), self.attention_dropout(op))
        mixed = tape.matmul(tape.view(weights, batch * heads, s, s), v)
        return tape.contiguous(tape.transpose(tape.view(mixed, batch, heads, s, d), 1, 2))

    def mixed_with_neighbours(self, op: Op, x: Tensor, residual: Tensor) -> Tensor:
        """`ConvLayer`: the embeddings convolved, filled in place where there is no token, normed with the residual."""
        tape = self.tape
        weight, bias, *norm = self.parameters_of(op)
        h = tape.conv1d(tape.contiguous(tape.permute(x, 0, 2, 1)), weight, bias, 1)
        h = tape.contiguous(tape.permute(h, 0, 2, 1))
        absent = tape.unsqueeze(tape.new((self.batch, self.sequence), "bool", op="_to_copy"), -1)
        tape.record("masked_fill_", [h, absent], [h], [(absent, "mask")])
        h = apply_activation(tape, op.settings["function"], tape.dropout(h, op.settings["p"]))
        summed = tape.add(residual, h)
        return self.times_mask(op, tape.to(tape.layer_norm(summed, *norm), summed.dtype))

    # -- both ----------------------------------------------------------------------------------------------

    def _gathered(self, compared: Tensor, kind: str) -> Tensor:
        """The score of each pair's distance out of those of every distance, by a table of pairs made here."""
        tape, s = self.tape, compared.shape[-2]
        pairs = tape.new((*(1,) * (compared.ndim - 2), s, s), "int64", op="clamp")
        found = tape.gather(compared, tape.expand(pairs, *compared.shape[:-2], s, s))
        return tape.transpose(found, -1, -2) if kind == "p2c" else found

    def _added(self, scores: Tensor, biases: list[Tensor]) -> Tensor:
        """scores + (0 + first bias, the second added in place)."""
        if not biases:
            return scores
        tape = self.tape
        bias = tape.scale(biases[0], "add_scalar")
        for other in biases[1:]:
            bias = tape.add_(bias, other)
        return tape.add(scores, bias)

    def _pairs(self, q: Tensor, k: Tensor) -> Tensor:
        return self.tape.new((self.batch, 1, q.shape[2], k.shape[2]), "bool", op="bitwise_not")
