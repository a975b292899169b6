"""XLNet's attention as transformers 5.23 runs it: contents and relative positions compared by `torch.einsum`."""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.models.autograd.size import Dim
from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.models.operations.attention import HeadedAttention
from vramwise.models.operations.inputs import input_tensor


class SequenceFirstEmbedding(Operation):
    __slots__ = ()


@lowering(SequenceFirstEmbedding)
def sequence_first_embedding(run: Lowering, op: SequenceFirstEmbedding) -> Tensor:
    """Ids turned to (sequence, batch), a copy, and looked up."""
    tape = run.tape
    ids = tape.contiguous(tape.transpose(input_tensor(run, "input_ids"), 0, 1))
    return tape.embedding(ids, *run.parameters_of(op))


class BatchFirst(Operation):
    __slots__ = ()


@lowering(BatchFirst)
def batch_first(run: Lowering, op: BatchFirst, x: Tensor) -> Tensor:
    return run.tape.contiguous(run.tape.permute(x, 1, 0, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class XlnetAttention(HeadedAttention):
    dropout: float


@lowering(XlnetAttention)
def xlnet_attention(run: Lowering, op: XlnetAttention, x: Tensor) -> Tensor:
    """`XLNetRelativeAttention` as far as the output projection.

    The weights are no operands of linear layers, so that autocast casts them, and the input for each, anew.
    """
    tape, p = run.tape, op.dropout if run.execution.dropout else 0.0
    query, key, value, out, relative, distance_bias, _, content_bias, _ = run.parameters_of(op)
    q, k, v = (tape.einsum("ibh,hnd->ibnd", x, weight) for weight in (query, key, value))
    distances = tape.to(_distances(run, x.shape[-1], p), relative.dtype)
    r = tape.einsum("ibh,hnd->ibnd", distances, relative)
    content = tape.einsum("ibnd,jbnd->bnij", tape.add(q, content_bias), k)
    shifted = _shifted(run, tape.einsum("ibnd,jbnd->bnij", tape.add(q, distance_bias), r))
    scores = tape.scale(tape.scale(tape.add(content, shifted), "add_scalar"))
    weights = tape.dropout(tape.softmax(scores), p)
    return tape.einsum("ibnd,hnd->ibh", tape.einsum("bnij,jbnd->ibnd", weights, v), out)


def _distances(run: Lowering, width: Dim, p: float) -> Tensor:
    """Sines and cosines of every distance, seen for every row of the batch, with a dropout; made once."""
    if "distances" not in run.tables:
        tape = run.tape
        table = tape.new((2 * run.sequence, 1, width), "fp32", op="cat")
        wide = tape.expand(table, 2 * run.sequence, run.batch, width)
        run.tables["distances"] = (tape.dropout(wide, p),)
    return run.tables["distances"][0]


def _shifted(run: Lowering, scores: Tensor) -> Tensor:
    """`rel_shift_bnij`: each query's distances moved to its keys; `index_select` keeps the keys' numbers."""
    tape = run.tape
    b, n, i, j = scores.shape
    x = tape.narrow(tape.reshape(scores, b, n, j, i), 2, j - 1)
    x = tape.reshape(x, b, n, i, j - 1)
    keys = tape.new((i,), "int64", op="arange")
    picked = tape.new((b, n, i, i), x.dtype, requires_grad=x.requires_grad, op="index_select")
    tape.record("index_select", [x, keys], [picked], [(keys, "index")])
    return picked
