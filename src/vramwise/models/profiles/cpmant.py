"""CPM-Ant as transformers 5.23 runs it: prompts before the text, biases of segments and distances on the scores."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op


class CpmAntPaths:
    """Indices are int32, and a sequence is as many positions longer as a prompt has."""

    tape: Tape
    batch: Dim
    sequence: Dim
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]

    def prompted_embedding(self, op: Op) -> Tensor:
        """Ids (or segments) of the prompt and the text, joined and looked up."""
        length = self.sequence + op.settings["prompt_length"]
        return self.tape.embedding(self.tape.new((self.batch, length), "int32", op="cat"), *self.parameters_of(op))

    def segment_position_bias(self, op: Op) -> Tensor:
        """The bucket of every pair of positions looked up: (batch, heads, queries, keys), once for all layers."""
        length = self.sequence + op.settings["prompt_length"]
        buckets = self.tape.new((self.batch, length, length), "int32", op="where")
        found = self.tape.embedding(buckets, *self.parameters_of(op))
        return self.tape.contiguous(self.tape.permute(found, 0, 3, 1, 2))

    def without_prompt(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.narrow(x, 1, self.sequence)

    def _eager_cpmant(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Scores masked before the softmax and after it, each time by a mask made anew."""
        tape = self.tape
        scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
        masks = [tape.new((self.batch, 1, q.shape[2], k.shape[2]), "bool", op="eq") for _ in range(2)]
        weights = tape.masked_fill(tape.softmax(tape.masked_fill(scores, masks[0])), masks[1])
        weights = tape.dropout(weights, self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))
