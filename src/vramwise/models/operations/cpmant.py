"""CPM-Ant as transformers 5.23 runs it: prompts before the text, biases of segments and distances on the scores."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import Attention, AttentionStyle, attention_dropout


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptedEmbedding(Operation):
    prompt_length: int


@lowering(PromptedEmbedding)
def prompted_embedding(run: Lowering, op: PromptedEmbedding) -> Tensor:
    """Ids (or segments) of the prompt and the text, joined and looked up."""
    length = run.sequence + op.prompt_length
    return run.tape.embedding(run.tape.new((run.batch, length), "int32", op="cat"), *run.parameters_of(op))


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPositionBias(Operation):
    prompt_length: int


@lowering(SegmentPositionBias)
def segment_position_bias(run: Lowering, op: SegmentPositionBias) -> Tensor:
    """The bucket of every pair of positions looked up: (batch, heads, queries, keys), once for all layers."""
    length = run.sequence + op.prompt_length
    buckets = run.tape.new((run.batch, length, length), "int32", op="where")
    found = run.tape.embedding(buckets, *run.parameters_of(op))
    return run.tape.contiguous(run.tape.permute(found, 0, 3, 1, 2))


class WithoutPrompt(Operation):
    __slots__ = ()


@lowering(WithoutPrompt)
def without_prompt(run: Lowering, op: WithoutPrompt, x: Tensor) -> Tensor:
    return run.tape.narrow(x, 1, run.sequence)


CPMANT = AttentionStyle("cpmant")


@CPMANT.path("eager")
def _eager_cpmant(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Scores masked before the softmax and after it, each time by a mask made anew."""
    tape = run.tape
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    masks = [tape.new((run.batch, 1, q.shape[2], k.shape[2]), "bool", op="eq") for _ in range(2)]
    weights = tape.masked_fill(tape.softmax(tape.masked_fill(scores, masks[0])), masks[1])
    weights = tape.dropout(weights, attention_dropout(run, op.dropout))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))
