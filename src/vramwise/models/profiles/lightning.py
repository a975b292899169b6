"""MiniMax's lightning attention as transformers 5.23 runs it, in PyTorch: a loop over blocks of positions.

Its steps are alike, so that they are recorded once; sums over blocks are sizes of one tensor.
"""

from __future__ import annotations

from vramwise.models.autograd.recorder import promote
from vramwise.models.autograd.size import Dim, chunks_of
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class LightningPaths:
    """Shapes: b batch, s sequence, h heads, d width of a head, n blocks of c positions, the last perhaps shorter."""

    tape: Tape
    execution: Execution
    sequence: Dim
    windows_reached: frozenset[int]

    def lightning_attention(self, op: Op, qkv: Tensor) -> Tensor:
        """q·kᵀ·decay·v within a block plus q·decay·S, where S sums kᵀ·v of the blocks before: (b, s, h·d)."""
        tape, heads, length = self.tape, op.settings["num_heads"], op.settings["chunk_size"]
        joint = tape.reshape(qkv, *qkv.shape[:2], heads, qkv.shape[-1] // heads)
        q, k, v = (tape.transpose(x, 1, 2) for x in tape.chunk(joint, 3))
        within = self._within_blocks(q, k, v, length)
        before = self._blocks_before(q, k, v, length)
        out = tape.cat([tape.add(before, within)], 2)
        return tape.reshape(tape.transpose(out, 1, 2), *qkv.shape[:2], -1)

    def _outgrows(self, length: int) -> bool:
        return length in self.windows_reached

    def _before_last(self, length: int) -> Dim:
        """How many positions there are before the last block."""
        return (chunks_of(self.sequence, length) - 1) * length if self._outgrows(length) else 0

    def _decay_buffer(self, *shape: Dim) -> Tensor:
        """One of the module's buffers."""
        return self.tape.new(shape, self.execution.param_dtype, kind="buffer", op="buffer")

    def _heads_in_batch(self, x: Tensor) -> Tensor:
        """Heads folded into the batch: a copy where they do not lie so."""
        (x,) = self.tape.autocast_low(x)
        return self.tape.reshape(x, x.shape[0] * x.shape[1], *x.shape[2:])

    def _within_blocks(self, q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
        tape = self.tape
        b, heads, s, d = q.shape
        earlier = self._before_last(length)
        pairs = earlier * length + (s - earlier) * (s - earlier)
        rows, columns = self._heads_in_batch(q), self._heads_in_batch(tape.transpose(k, 2, 3))
        work = 2 * b * heads * pairs * d
        scores = tape.new((b, heads, pairs), rows.dtype, requires_grad=True, op="bmm")
        saves = [(rows, "self"), (columns, "mat2")]
        tape.record("bmm", [rows, columns], [scores], saves, flops=work, backward_flops=2 * work)
        decay = self._decay_buffer(1, heads, length, length)
        dtype = promote(scores.dtype, decay.dtype)
        decayed = tape.new(scores.shape, dtype, requires_grad=True, op="mul")
        tape.record("mul", [scores, decay], [decayed], [(decay, "other")])
        (decayed,), values = tape.autocast_low(decayed), self._heads_in_batch(v)
        out = tape.new((b, heads, s, d), values.dtype, requires_grad=True, op="bmm")
        saves = [(decayed, "self"), (values, "mat2")]
        tape.record("bmm", [decayed, values], [out], saves, flops=work, backward_flops=2 * work)
        return out

    def _decayed(self, x: Tensor, length: int) -> Tensor:
        """x times a buffer of factors by head and position of a block."""
        return self.tape.mul(x, self.tape.narrow(self._decay_buffer(x.shape[1], length, 1), 1, x.shape[2]))

    def _blocks_before(self, q: Tensor, k: Tensor, v: Tensor, length: int) -> Tensor:
        """The first block reads zeros without a gradient, for which no query is kept; the last S is not read."""
        tape, many = self.tape, self._outgrows(length)
        b, heads, s, d = q.shape
        state = (b, heads, d, d)
        zeros = tape.new(state, v.dtype, op="zeros")
        (queries,) = tape.autocast_low(self._decayed(q, length))
        out = tape.new((b, heads, s, d), queries.dtype, requires_grad=True, op="bmm")
        saves, work, backward = [(zeros, "mat2")], 2 * b * heads * s * d * d, 2 * b * heads * s * d * d
        inputs = [queries, zeros]
        if many:
            states = self._summed_states(k, v, length)
            read = tape.new((b, heads, s - length, d), queries.dtype, requires_grad=True, op="clone")
            tape.record("clone", [queries], [read])
            saves += [(states, "mat2"), (read, "self")]
            backward = backward + 2 * b * heads * (s - length) * d * d
            inputs = [read, zeros, states]
        tape.record("bmm", inputs, [out], saves, flops=work, backward_flops=backward)
        if not many:  # S of the only block: made, and dropped with its graph
            tape.record("bmm", [tape.detached(k), tape.detached(v)], [zeros], flops=work)
        return out

    def _summed_states(self, k: Tensor, v: Tensor, length: int) -> Tensor:
        """S after every block but the last, whose product is made too, in the dtype in which queries meet them."""
        tape, earlier = self.tape, self._before_last(length)
        b, heads, s, d = k.shape
        (keys,) = tape.autocast_low(self._decayed(k, length))
        low = keys.dtype
        kept = tape.new((b, heads, earlier, d), low, requires_grad=True, op="clone")
        tape.record("clone", [keys], [kept])
        values = self._heads_in_batch(v)
        if values.storage is not v.storage:
            values = tape.new((b, heads, earlier, d), low, requires_grad=True, op="clone")
            tape.record("clone", [v], [values])
        blocks = chunks_of(self.sequence, length) - 1
        states = tape.new((blocks, b, heads, d, d), low, requires_grad=True, op="add")
        factors = tape.new((blocks - 1, heads), self.execution.param_dtype, op="exp")
        tape.record(
            "bmm", [kept, values], [states], [(kept, "self"), (values, "mat2"), (factors, "other")],
            flops=2 * b * heads * s * d * d, backward_flops=2 * 2 * b * heads * earlier * d * d,
        )  # fmt: skip
        return states
