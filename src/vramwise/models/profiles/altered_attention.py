"""Attention that is more than softmax(q·kᵀ)·v in transformers 5.23: DiffLlama, Granite with sinks, Doge."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution


class AlteredAttentionPaths:
    """Differences of two attentions, learned sinks outside the softmax, masks that are trained."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    hidden_dtype: str
    windows_reached: frozenset[int]
    parameters_of: Callable[[Op], list[Tensor]]
    attention_dropout: Callable[[Op], float]
    cached: Callable[..., tuple[Tensor, ...]]
    _eager: Callable[[Op, Tensor, Tensor, Tensor], Tensor]
    _sdpa: Callable[[Op, Tensor, Tensor, Tensor], Tensor]
    flash_with_sinks: Callable[[Op, Tensor, Tensor, Tensor], Tensor]

    def differential_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`DiffLlamaAttention`: attention over each half of the values; the second half of heads is subtracted."""
        tape = self.tape
        k, v = self.cached(op, k, v)
        attend = self._eager if self.execution.attention == "eager" else self._sdpa
        groups = k.shape[1]
        halves = [tape.clone_contiguous(tape.stack([half, half], 1)) for half in tape.chunk(v, 2, 1)]
        mixed = tape.cat([attend(op, q, k, tape.view(x, x.shape[0], groups, *x.shape[3:])) for x in halves])
        first, second = tape.chunk(mixed, 2, 2)
        q1, k1, q2, k2 = self.parameters_of(op)
        factors = [tape.to(self._exponential(a, b), q.dtype) for a, b in ((q1, k1), (q2, k2))]
        factor = tape.scale(tape.add(*factors), "add_scalar")
        out = tape.scale(self._rms_kernel(tape.add(first, tape.mul(factor, second))))
        return tape.reshape(out, *out.shape[:2], -1)

    def _exponential(self, a: Tensor, b: Tensor) -> Tensor:
        tape = self.tape
        return tape.unary("exp", tape.reduce("sum", tape.to(tape.mul(a, b), "fp32"), keepdim=False))

    def _rms_kernel(self, x: Tensor) -> Tensor:
        """`F.rms_norm` without a weight: one kernel on CUDA, composed of others in fp32 on CPU."""
        tape = self.tape
        x = tape.autocast_high("rms_norm", x)
        if tape.device == "cuda":
            out = tape.new(x.shape, x.dtype, requires_grad=x.requires_grad, op="_fused_rms_norm")
            rstd = tape.new((*x.shape[:-1], 1), "fp32", op="_fused_rms_norm")
            tape.record("_fused_rms_norm", [x], [out, rstd], [(x, "input"), (rstd, "rstd")])
            return out
        wide = tape.to(x, "fp32")
        variance = tape.scale(tape.reduce("mean", tape.unary("pow", wide)), "add_scalar")
        return tape.to(tape.mul(wide, tape.unary("rsqrt", variance)), x.dtype)

    def lse_sink_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`GraniteSWAAttention`: the result times sigmoid(log-sum-exp of the scores − the head's sink)."""
        tape = self.tape
        k, v = self.cached(op, k, v)
        if self.execution.sdpa_backend == "flash":
            return self.flash_with_sinks(op, q, k, v)
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
        mask = tape.new((self.batch, 1, self.sequence, self.sequence), self.hidden_dtype, op="mask")
        scores = tape.add(scores, mask)
        (sinks,) = self.parameters_of(op)
        excess = tape.add(tape.logsumexp(scores), tape.view(sinks, 1, -1, 1))
        share = tape.unary("sigmoid", tape.to(excess, "fp32"))
        weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), self.attention_dropout(op))
        mixed = tape.matmul(weights, v)
        mixed = tape.mul(mixed, tape.to(tape.unsqueeze(share, -1), mixed.dtype))
        return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), self.batch, self.sequence, -1)

    def fp32_sink_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`FlintAttention`: fp32 scores outside of autocast, and one column more of them, the head's sink."""
        tape = self.tape
        k, v = self.cached(op, k, v)
        if self.execution.sdpa_backend == "flash":
            return self.flash_with_sinks(op, q, k, v)
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.scale(tape.matmul_plain(tape.to(q, "fp32"), tape.transpose(tape.to(k, "fp32"), 2, 3)))
        mask = tape.new((self.batch, 1, self.sequence, self.sequence), self.hidden_dtype, op="mask")
        (sinks,) = self.parameters_of(op)
        column = tape.expand(tape.reshape(sinks, 1, -1, 1, 1), self.batch, -1, self.sequence, -1)
        shares = tape.softmax(tape.cat([tape.add(scores, mask), column]))
        weights = tape.to(tape.narrow(shares, -1, k.shape[2]), v.dtype)
        mixed = tape.matmul(tape.dropout(weights, self.attention_dropout(op)), v)
        return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), self.batch, self.sequence, -1)

    def dynamic_mask_attention(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`DogeAttention`: a factor for every key made from its value, as a mask of floats that has a gradient."""
        tape, times = self.tape, op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = self.cached(op, k, v)
        mask = tape.repeat_interleave_heads(self._dynamic_mask(op, v), times)
        eager, dropout = self.execution.attention == "eager", self.attention_dropout(op)
        if not eager and times > 1 and self.sequence == 1:
            # `pack_gqa`: the heads of a group stand in for tokens.
            q, mask = (tape.reshape(x, self.batch, k.shape[1], times, x.shape[-1]) for x in (q, mask))
        else:
            k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        if eager:
            scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), mask)
            weights = tape.dropout(tape.to(tape.softmax(scores, "fp32"), q.dtype), dropout)
            mixed = tape.matmul(weights, v)
        else:
            mixed = tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=self.execution.sdpa_backend)
            mixed = tape.reshape(mixed, self.batch, -1, self.sequence, v.shape[-1])
        return tape.reshape(tape.contiguous(tape.transpose(mixed, 1, 2)), self.batch, self.sequence, -1)

    def _dynamic_mask(self, op: Op, v: Tensor) -> Tensor:
        """`prepare_dynamic_mask`: causal, and only the best keys of many."""
        tape, length = self.tape, op.settings["chunk_size"]
        decay, weight, *bias = self.parameters_of(op)
        rows = tape.reshape(tape.transpose(v, 1, 2), v.shape[0], v.shape[2], -1)
        factors = tape.unary("exp", tape.mul(decay, tape.unary("softplus", tape.linear(rows, weight, *bias))))
        mask = tape.unsqueeze(tape.transpose(factors, 1, 2), 2)
        mask = tape.expand(mask, -1, -1, self.sequence, -1)
        outside = tape.new((self.batch, 1, self.sequence, self.sequence), "bool", op="ne")
        mask = tape.masked_fill(mask, outside)
        if length in self.windows_reached:
            # Only the indices are used, so the node goes with the values and keeps nothing.
            tape.topk(tape.detached(mask), length)
            mask = tape.masked_fill(mask, tape.new(mask.shape, "bool", op="eq"))
        return mask
