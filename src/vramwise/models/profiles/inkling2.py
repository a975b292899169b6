"""What only Inkling 2 runs in transformers 5.23: states of blocks read by attention, clipped heads, dynamic taps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class Inkling2Paths:
    """Block states are (batch, sequence, states, width)."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    hidden_dtype: str
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]
    unweighted: Callable[[Tensor], Tensor]
    padding_zeroed: Callable[[Op, Tensor], Tensor]
    _route_corrected: Callable[..., tuple[Tensor, Tensor]]

    def append_state(self, op: Op, x: Tensor, *states: Tensor) -> Tensor:
        return self.tape.cat([*states, self.tape.unsqueeze(x, -2)], -2)

    def read_states(self, op: Op, x: Tensor, states: Tensor) -> tuple[Tensor, ...]:
        """Each position's block states and its own, normed in fp32, averaged by learned queries."""
        tape = self.tape
        (query,) = self.parameters_of(op)
        every = self.unweighted(tape.to(tape.cat([states, tape.unsqueeze(x, -2)], -2), "fp32"))
        queries = tape.view(tape.to(query, "fp32"), -1, x.shape[-1])
        queries = tape.expand(tape.unleafed(queries), *x.shape[:2], -1, -1)
        out = tape.sdpa(queries, every, every, backend=self.execution.sdpa_backend)
        return tuple(tape.select(out, 2) for _ in op.outputs)

    def back_to(self, op: Op, x: Tensor) -> Tensor:
        """The cast to the dtype of the stream between layers."""
        return self.tape.to(x, self.hidden_dtype)

    def clipped(self, op: Op, x: Tensor) -> Tensor:
        """Heads in fp32, times a scale where there is one, shortened where they are longer than a threshold."""
        tape, wide = self.tape, self.tape.to(x, "fp32")
        for scale in self.parameters_of(op):
            wide = tape.mul(wide, tape.to(scale, "fp32"))
        norm = tape.vector_norm(wide)
        factor = tape.scale(tape.unary("reciprocal", tape.scale(norm, "add_scalar")))
        return tape.to(tape.mul(wide, tape.unary("clamp", factor)), x.dtype)

    def unweighted_fp32(self, op: Op, x: Tensor) -> Tensor:
        return self.tape.to(self.unweighted(self.tape.to(x, "fp32")), x.dtype)

    def both_by_position(self, op: Op, *scaled: Tensor) -> tuple[Tensor, ...]:
        """As `both_by_log_position`, on (batch, sequence, heads, d)."""
        tape = self.tape
        factor = tape.new((1, self.sequence, 1, 1), "fp32", op="add_scalar")
        return tuple(tape.to(tape.mul(tape.to(x, "fp32"), factor), x.dtype) for x in scaled)

    def dynamic_convolution(self, op: Op, x: Tensor, source: Tensor) -> Tensor:
        """Taps of each token's own, shared within a head, on top of fixed ones; windows are copied out."""
        tape, heads, kernel = self.tape, op.settings["num_heads"], op.settings["kernel"]
        fixed, weight = self.parameters_of(op)
        batch, sequence, width = x.shape
        own = tape.view(tape.to(tape.linear(source, weight), "fp32"), batch, sequence, heads, 1, kernel)
        taps = tape.add(tape.view(tape.transpose(tape.to(fixed, "fp32"), 0, 1), heads, -1, kernel), own)
        wide = tape.to(x, "fp32")
        padded = tape.pad(tape.transpose(self.padding_zeroed(op, wide), 1, 2), -1, kernel - 1)
        shape = (batch, width, sequence, kernel)
        windows = tape.new(shape, "fp32", requires_grad=padded.requires_grad, op="flip")
        tape.record("flip", [padded], [windows])
        windows = tape.reshape(tape.transpose(windows, 1, 2), batch, sequence, heads, -1, kernel)
        h = tape.reshape(tape.reduce("sum", tape.mul(windows, taps), keepdim=False), batch, sequence, width)
        return tape.to(tape.scale(tape.add(h, wide)), x.dtype)

    def distance_sink_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, sinks: Tensor) -> Tensor:
        """Scores with a bias by distance, and each token's own sink as one column more of the softmax."""
        tape = self.tape
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
        mask = tape.new((self.batch, 1, self.sequence, self.sequence), self.hidden_dtype, op="mask")
        column = tape.unsqueeze(tape.transpose(sinks, 1, 2), -1)
        shares = tape.softmax(tape.to(tape.cat([tape.add(scores, mask), column]), "fp32"))
        weights = tape.to(tape.narrow(shares, -1, self.sequence), q.dtype)
        mixed = tape.matmul(tape.dropout(weights, self.attention_dropout(op)), v)
        return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), self.batch, self.sequence, -1)

    def fp32_sigmoid_gate(self, op: Op, x: Tensor, gate: Tensor) -> Tensor:
        tape = self.tape
        return tape.to(tape.mul(tape.to(x, "fp32"), tape.unary("sigmoid", tape.to(gate, "fp32"))), x.dtype)

    def _route_fp32_weight(self, op: Op, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """As `corrected`, by a weight that is fp32 whatever the model's dtype."""
        return self._route_corrected(op, x, replace(weight, dtype="fp32"))

    def _capped(self, x: Tensor) -> Tensor:
        return self.tape.scale(self.tape.unary("tanh", self.tape.scale(x)))

    def _gate_capped_halves(self, op: Op, h: Tensor) -> Tensor:
        """cap(gate)·sigmoid(gate)·cap(up) in fp32."""
        tape = self.tape
        gate, up = (tape.to(half, "fp32") for half in tape.chunk(h, 2))
        product = tape.mul(self._capped(gate), tape.unary("sigmoid", gate))
        return tape.to(tape.mul(product, self._capped(up)), h.dtype)
