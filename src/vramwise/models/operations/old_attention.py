"""Attention of classes that write it out themselves in transformers 5.23: XGLM, CodeGen, GPT-NeoX Japanese, GPT."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout, sdpa_attention
from vramwise.models.operations.early_attention import float_mask, returned_weights
from vramwise.records import record

XGLM = AttentionStyle("xglm")


@XGLM.path("eager")
def _eager_xglm(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`XGLMAttention`: heads folded into the batch, scores bounded from below by a scalar tensor."""
    tape = run.tape
    batch, heads, s, d = q.shape
    q, k, v = (tape.reshape(x, batch * heads, x.shape[2], d) for x in (q, k, v))
    scores = tape.view(tape.matmul(q, tape.transpose(k, 1, 2)), batch, heads, s, k.shape[1])
    scores = tape.maximum(tape.add(scores, float_mask(run)), tape.new((), "fp32", op="full"))
    scores = tape.view(scores, batch * heads, s, k.shape[1])
    weights = tape.to(tape.softmax(scores, "fp32"), "fp16") if scores.dtype == "fp16" else tape.softmax(scores)
    mixed = tape.matmul(tape.dropout(weights, attention_dropout(run, op.dropout)), v)
    return tape.transpose(tape.view(mixed, batch, heads, s, d), 1, 2)


OPENAI_GPT = AttentionStyle("openai_gpt")


@OPENAI_GPT.path("eager")
def _eager_openai_gpt(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`Attention._attn`: scores times a triangle of ones, a buffer of every layer as long as the positions."""
    tape, rows = run.tape, op.buffer_rows
    scores = tape.scale(tape.matmul(q, tape.transpose(k, 2, 3)))
    table = tape.new((1, 1, rows, rows), run.execution.param_dtype, kind="registered", op="bias")
    triangle = tape.narrow(tape.narrow(table, 2, q.shape[2]), 3, k.shape[2])
    scores = tape.add(tape.mul(scores, triangle), tape.scale(triangle))
    if run.execution.padding:
        scores = tape.add(scores, tape.new((run.batch, 1, 1, k.shape[2]), run.execution.param_dtype, op="mul"))
    weights = tape.dropout(tape.softmax(scores), attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@record(kw_only=True, eq=False)
class CodegenQkv(Operation):
    num_heads: int
    slices: int


@lowering(CodegenQkv)
def codegen_qkv(run: Lowering, op: CodegenQkv, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`CodeGenAttention._split_heads`: four slices of queries, values and keys, each joined to all heads."""
    tape, slices, heads, d = run.tape, op.slices, op.num_heads, op.outputs[0].width
    sliced = tape.view(fused, *fused.shape[:-1], slices, -1)
    pieces = tape.chunk(sliced, 3)
    split = (tape.view(piece, *piece.shape[:-1], heads // slices, d) for piece in pieces)
    q, v, k = (tape.reshape(x, *fused.shape[:-1], heads, d) for x in split)
    return q, k, v


CODEGEN = AttentionStyle("codegen")


@CODEGEN.path("eager")
def _eager_codegen(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`CodeGenAttention._attn`: q and k in fp32, the mask added before the scores are scaled."""
    tape = run.tape
    scores = tape.matmul(tape.to(q, "fp32"), tape.transpose(tape.to(k, "fp32"), 2, 3))
    scores = tape.scale(tape.add(scores, float_mask(run)))
    weights = tape.to(tape.softmax(scores), v.dtype)
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    returned_weights(run, weights)
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))


@CODEGEN.path("sdpa")
def _sdpa_codegen(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Since transformers 5.24 `CodeGenAttention.forward` casts what rotary positions made fp32 back."""
    return sdpa_attention(run, op, run.tape.to(q, v.dtype), run.tape.to(k, v.dtype), v)


NEOX_JAPANESE = AttentionStyle("neox_japanese")


@NEOX_JAPANESE.path("eager")
def _eager_neox_japanese(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`GPTNeoXJapaneseAttention._attn`: scores on top of zeros in one product, dropout before the cast back."""
    tape = run.tape
    batch, heads, s, _ = q.shape
    q, k = (tape.view(x, batch * heads, x.shape[2], x.shape[3]) for x in (q, k))
    zeros = tape.new((batch * heads, s, k.shape[1]), q.dtype, op="zeros")
    scores = tape.view(tape.baddbmm(zeros, q, tape.transpose(k, 1, 2)), batch, heads, s, k.shape[1])
    weights = tape.dropout(tape.softmax(tape.add(scores, float_mask(run))), attention_dropout(run, op.dropout))
    mixed = tape.matmul(tape.to(weights, v.dtype), v)
    return tape.contiguous(tape.transpose(mixed, 1, 2))
