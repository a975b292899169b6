"""Operations of single encoder and encoder-decoder families as transformers 5.23 runs them."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class EncoderPaths:
    """What BERT's and BART's relatives do beyond the usual."""

    tape: Tape
    batch: Dim
    hidden_dtype: str
    execution: Execution
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]
    _rotate_half: Callable[[Tensor, Tensor, Tensor], Tensor]

    def concatenate(self, op: Op, *pieces: Tensor) -> Tensor:
        """Joined along the last axis."""
        return self.tape.cat(pieces)

    def masks_take_dtype(self, op: Op, x: Tensor) -> Tensor:
        """The classes make their mask from this tensor: autocast may have narrowed it."""
        self.hidden_dtype = x.dtype
        return x

    def contiguous(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.contiguous(x)

    def bound_fp16(self, op: Op, x: Tensor) -> Tensor:
        """fp16 hidden states are clamped between two numbers; other dtypes pass."""
        if x.dtype != "fp16":
            return x
        out = self.tape.like(x, requires_grad=x.requires_grad, op="clamp")
        self.tape.record("clamp", [x], [out], [(x, "self")])
        return out

    def times_whole_mask(self, op: Op, x: Tensor) -> Tensor:
        """A product with a mask of whole numbers, cast anew at each place; backward keeps the copy (XLM)."""
        return self.tape.mul(x, self.tape.new((*x.shape[:-1], 1), x.dtype, op="_to_copy"))

    def add_buffer(self, op: Op, x: Tensor) -> Tensor:
        """A row of numbers that the module holds as a buffer in the parameters' dtype (`final_logits_bias`)."""
        return self.tape.add(x, self.tape.new((1, x.shape[-1]), self.execution.param_dtype, kind="buffer", op="buffer"))

    def add_frozen(self, op: Op, x: Tensor) -> Tensor:
        """A parameter that is never trained."""
        return self.tape.add(x, *self.parameters_of(op))

    def sound(self, op: Op) -> Tensor:
        """Spectrograms: (batch, mel bins, frames) in the parameters' dtype."""
        shape = (self.batch, op.outputs[0].width, op.settings["frames"])
        return self.tape.new(shape, self.execution.param_dtype, kind="input", op="input_features")

    def convolution(self, op: Op, x: Tensor) -> Tensor:
        weight, bias = self.parameters_of(op)
        return self.tape.conv1d(x, weight, bias, op.settings["stride"])

    def unbound_qkv(self, op: Op, fused: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values as views of one product (ModernBERT)."""
        tape, width = self.tape, op.outputs[0].width
        stacked = tape.view(fused, *fused.shape[:-1], 3, op.settings["num_heads"], width)
        return tuple(tape.squeeze(tape.narrow(stacked, 2, 1), 2) for _ in range(3))

    def _eager_biased(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        """Biases added to the scores in place, then the mask (MPNet)."""
        tape = self.tape
        scores = tape.add_(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
        if self.execution.padding:
            scores = tape.add(scores, tape.new((self.batch, 1, 1, k.shape[2]), self.hidden_dtype, op="mask"))
        weights = tape.dropout(tape.softmax(scores), self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def _rotate_half_widened(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x·cos + rotate_half(x)·sin on an fp32 copy, cast back (ModernBERT)."""
        return self.tape.to(self._rotate_half(self.tape.to(x, "fp32"), cos, sin), x.dtype)

    def _eager_xlm(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Scores filled in place where the mask says so, softmax in fp32 (XLM)."""
        tape = self.tape
        rows = q.shape[2] if op.settings["causal"] else 1
        scores = tape.matmul(q, tape.transpose(k, 2, 3))
        hidden = tape.new((self.batch, 1, rows, k.shape[2]), "bool", op="eq")
        weights = tape.to(tape.softmax(tape.to(tape.masked_fill(scores, hidden), "fp32")), scores.dtype)
        weights = tape.dropout(weights, self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    def pool_aside(self, op: Op, x: Tensor) -> tuple[()]:
        """tanh of a projection of the first token, which the loss does not read: no gradient flows through it."""
        first, weight, bias = (self.tape.detached(part) for part in (self.tape.select(x, 1), *self.parameters_of(op)))
        self.tape.unary("tanh", self.tape.linear(first, weight, bias))
        return ()

    def _eager_folded(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Heads folded into the batch, the mask added in between (MVP, TrOCR, LED)."""
        tape = self.tape
        batch, heads, s, d = q.shape
        q, k, v = (tape.reshape(x, batch * heads, x.shape[2], d) for x in (q, k, v))
        scores = tape.matmul(q, tape.transpose(k, 1, 2))
        causal = op.settings["causal"] and (s != 1 or op.settings["masks_one_token"])
        if causal or self.execution.padding:
            mask = tape.new((batch, 1, s, k.shape[1]), self.hidden_dtype, op="mask")
            scores = tape.add(tape.view(scores, batch, heads, s, k.shape[1]), mask)
            scores = tape.view(scores, batch * heads, s, k.shape[1])
        weights = tape.dropout(tape.softmax(scores), self.attention_dropout(op))
        return tape.transpose(tape.view(tape.matmul(weights, v), batch, heads, s, d), 1, 2)

    def rows_of_language(self, op: Op, x: Tensor) -> Tensor:
        """X-MOD's sequences of one language: a copy, and a mask over the batch that backward keeps per language."""
        tape = self.tape
        rows = tape.like(x, requires_grad=x.requires_grad, op="index")
        masks = [tape.new((self.batch,), "bool", op="eq") for _ in range(op.settings["num_languages"])]
        tape.record("index", [x], [rows], [(mask, "indices") for mask in masks])
        return rows
