"""CPM-Ant as transformers 5.23 runs it: prompts before the text, biases of segments and distances on the scores."""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Op
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.lowerings.attention import attention_dropout, attention_path


@lowering("prompted_embedding")
def prompted_embedding(run: Lowering, op: Op) -> Tensor:
    """Ids (or segments) of the prompt and the text, joined and looked up."""
    length = run.sequence + op.settings["prompt_length"]
    return run.tape.embedding(run.tape.new((run.batch, length), "int32", op="cat"), *run.parameters_of(op))


@lowering("segment_position_bias")
def segment_position_bias(run: Lowering, op: Op) -> Tensor:
    """The bucket of every pair of positions looked up: (batch, heads, queries, keys), once for all layers."""
    length = run.sequence + op.settings["prompt_length"]
    buckets = run.tape.new((run.batch, length, length), "int32", op="where")
    found = run.tape.embedding(buckets, *run.parameters_of(op))
    return run.tape.contiguous(run.tape.permute(found, 0, 3, 1, 2))


@lowering("without_prompt")
def without_prompt(run: Lowering, op: Op, x: Tensor) -> Tensor:
    return run.tape.narrow(x, 1, run.sequence)


@attention_path("eager", "cpmant")
def _eager_cpmant(run: Lowering, op: Op, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Scores masked before the softmax and after it, each time by a mask made anew."""
    tape = run.tape
    scores = tape.add(tape.scale(tape.matmul(q, tape.transpose(k, 2, 3))), bias)
    masks = [tape.new((run.batch, 1, q.shape[2], k.shape[2]), "bool", op="eq") for _ in range(2)]
    weights = tape.masked_fill(tape.softmax(tape.masked_fill(scores, masks[0])), masks[1])
    weights = tape.dropout(weights, attention_dropout(run, op))
    return tape.contiguous(tape.transpose(tape.matmul(weights, v), 1, 2))
