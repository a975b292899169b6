"""Attention of classes that write it out themselves in transformers 5.23: BLOOM, MPT, GPT-J, GPT-Neo, Falcon."""

from __future__ import annotations

from collections.abc import Callable

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tape import Tape
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.execution import Execution
from vramwise.models.profiles.altered_attention import AlteredAttentionPaths
from vramwise.models.profiles.gemma import GemmaPaths
from vramwise.models.profiles.old_attention import OldAttentionPaths
from vramwise.models.profiles.streams import StreamPaths


class EarlyAttentionPaths(OldAttentionPaths, AlteredAttentionPaths, GemmaPaths, StreamPaths):
    """Eager paths by `style` (`_eager_STYLE`), SDPA paths (`_sdpa_STYLE`), and how q and k come about."""

    tape: Tape
    execution: Execution
    batch: Dim
    sequence: Dim
    tables: dict[str, tuple[Tensor, ...]]
    hidden_dtype: str
    attention_dropout: Callable[[Op], float]

    # -- BLOOM ---------------------------------------------------------------------------------------------

    def _eager_bloom(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`BloomAttention`: scores on top of the ALiBi biases in one product, softmax in fp32."""
        tape = self.tape
        batch, heads, s, _ = q.shape
        q, k, v = (tape.reshape(x, batch * heads, x.shape[2], x.shape[3]) for x in (q, k, v))
        alibi = tape.new((batch * heads, 1, k.shape[1]), self.hidden_dtype, op="alibi")
        scores = tape.baddbmm(alibi, q, tape.transpose(k, 1, 2))
        scores = tape.add(tape.view(scores, batch, heads, s, k.shape[1]), self._float_mask())
        weights = tape.to(tape.softmax(scores, "fp32"), q.dtype)
        weights = tape.dropout(weights, self.attention_dropout(op))
        mixed = tape.matmul(tape.view(weights, batch * heads, s, k.shape[1]), v)
        return tape.transpose(tape.view(mixed, batch, heads, s, v.shape[-1]), 1, 2)

    def _float_mask(self) -> Tensor:
        """The additive mask, in the dtype of the embeddings."""
        return self.tape.new((self.batch, 1, self.sequence, self.sequence), self.hidden_dtype, op="mask")

    # -- MPT -----------------------------------------------------------------------------------------------

    def _eager_mpt(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`MptAttention`: scores plus fp32 ALiBi biases, masked by one bool mask for all layers."""
        tape = self.tape
        times = op.settings["num_heads"] // op.settings["num_key_value_heads"]
        k, v = tape.repeat_interleave_heads(k, times), tape.repeat_interleave_heads(v, times)
        scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
        alibi = tape.new((1, q.shape[1], 1, k.shape[2]), "fp32", op="alibi")
        if "mpt" not in self.tables:
            self.tables["mpt"] = (self._bool_mask(),)
        scores = tape.masked_fill(tape.add(scores, alibi), self.tables["mpt"][0])
        weights = tape.to(tape.softmax(scores), v.dtype)
        weights = tape.dropout(weights, self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    # -- GPT-J and GPT-Neo ---------------------------------------------------------------------------------

    def rotary_every_two(self, op: Op, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """`GPTJAttention`: neighbouring pairs turn, by tables that every layer gathers and widens anew.

        The tables are cast to the keys' dtype unless `keeps_fp32`, which makes the turned heads fp32 (CodeGen).
        """
        tape, width = self.tape, op.settings["rotary_dim"]
        table = tape.new((1, self.sequence, width), "fp32", op="gather")
        table = table if op.settings["keeps_fp32"] else tape.to(table, k.dtype)
        sin, cos = tape.chunk(table, 2)
        k, q = (self._turned_pairs(x, width, sin, cos) for x in (k, q))
        return q, k

    def _turned_pairs(self, x: Tensor, width: int, sin: Tensor, cos: Tensor) -> Tensor:
        """x·cos + pairs(x)·sin on the first `width` columns of (batch, sequence, heads, d), joined with the rest."""
        tape = self.tape
        turned, passed = tape.narrow(x, -1, width), tape.narrow(x, -1, x.shape[-1] - width)
        sin, cos = (tape.new((1, self.sequence, 1, width), t.dtype, op="repeat_interleave") for t in (sin, cos))
        even, odd = tape.step(turned, -1, 2), tape.step(turned, -1, 2)
        swapped = tape.reshape(tape.stack([tape.unary("neg", odd), even]), *turned.shape)
        return tape.cat([tape.add(tape.mul(turned, cos), tape.mul(swapped, sin)), passed])

    def _eager_gptj(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`GPTJAttention._attn`: q and k are widened to fp32 before their product."""
        scores = self.tape.scale(self._fp32_scores(q, k))
        return self._mixed_by_fp32_scores(op, scores, v)

    def _eager_gpt_neo(self, op: Op, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`GPTNeoSelfAttention._attn`: as GPT-J, causal by the layer's own table of every pair of positions."""
        tape, rows = self.tape, op.settings["buffer_rows"]
        scores = self._fp32_scores(q, k)
        table = tape.new((1, 1, rows, rows), "bool", kind="buffer", op="bias")
        causal = tape.narrow(tape.narrow(table, 2, q.shape[2]), 3, k.shape[2])
        scores = tape.where(causal, scores, tape.new((), scores.dtype, op="tensor"))
        return self._mixed_by_fp32_scores(op, scores, v)

    def _fp32_scores(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self.tape.to(q, "fp32"), self.tape.to(k, "fp32")
        return self.tape.matmul(q, self.tape.transpose(k, 2, 3))

    def _mixed_by_fp32_scores(self, op: Op, scores: Tensor, v: Tensor) -> Tensor:
        tape = self.tape
        weights = tape.to(tape.softmax(tape.add(scores, self._float_mask())), v.dtype)
        weights = tape.dropout(weights, self.attention_dropout(op))
        return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))

    # -- Falcon --------------------------------------------------------------------------------------------

    def grouped_qkv(self, op: Op, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """`FalconAttention._split_heads`: each group's queries, key and value; key and value are copied out.

        With `broadcast`, every query head gets its own copy of its group's key and value; with `views` (InternLM 2)
        key and value stay where they are.
        """
        tape, d, groups = self.tape, op.outputs[0].width, op.settings["num_key_value_heads"]
        queries = op.settings["num_heads"] // groups
        qkv = tape.view(fused, *fused.shape[:-1], groups, queries + 2, d)
        q, k, v = (
            tape.narrow(qkv, 3, queries),
            *(tape.narrow(qkv, 3, 1) if op.settings.get("views") else tape.take(qkv, 3) for _ in range(2)),
        )
        if op.settings["broadcast"]:
            k, v = tape.expand(k, *q.shape), tape.expand(v, *q.shape)
        q, k, v = (tape.reshape(x, *fused.shape[:-1], x.shape[2] * x.shape[3], d) for x in (q, k, v))
        return q, k, v

    def _eager_falcon(self, op: Op, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        """`FalconAttention`: softmax in the dtype of the layer's input; dropout only beside ALiBi."""
        tape, alibi = self.tape, op.settings["alibi"]
        scores = tape.matmul(q, tape.transpose(k, 2, 3))
        if alibi:
            wide = tape.to(scores, "fp32") if scores.dtype in ("bf16", "fp16") else scores
            bias = tape.new((self.batch, q.shape[1], 1, k.shape[2]), self.hidden_dtype, op="alibi")
            scores = tape.add(wide, bias)
        scores = tape.add(tape.add_(scores, scores), self._float_mask())
        weights = tape.softmax(scores, hidden.dtype)
        if alibi:
            weights = tape.dropout(weights, self.attention_dropout(op))
        return tape.transpose(tape.matmul(weights, v), 1, 2)

    def _sdpa_falcon(self, op: Op, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        """`FalconAttention`: a mask is passed in any case, the biases of ALiBi in it; key heads are not repeated."""
        tape, alibi = self.tape, op.settings["alibi"]
        mask = self._alibi_mask(q.shape[1]) if alibi else self._bool_mask()
        dropout = self.attention_dropout(op) if alibi else 0.0
        backend = self.execution.sdpa_backend
        return tape.transpose(tape.sdpa(q, k, v, mask=mask, dropout=dropout, backend=backend), 1, 2)

    def _bool_mask(self) -> Tensor:
        return self.tape.new((self.batch, 1, self.sequence, self.sequence), "bool", op="mask")

    def _alibi_mask(self, heads: Dim) -> Tensor:
        """Biases and mask in one tensor, made once for all layers."""
        if "alibi" not in self.tables:
            shape = (self.batch, heads, self.sequence, self.sequence)
            self.tables["alibi"] = (self.tape.new(shape, self.hidden_dtype, op="masked_fill"),)
        return self.tables["alibi"][0]
