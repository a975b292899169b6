"""Heads of keys and values of which there are fewer than tensor-parallel ranks.

Megatron core 0.16.1 transformer/attention.py `get_query_key_value_tensors`: a rank's share of the joint product is a
part of a group's. All are gathered; each rank takes its group's keys and values out of that, and its own queries. Keys
are normed or turned into tensors of their own, values made one for the kernel (TransformerEngine 2.8 get_qkv_layout).
"""

from __future__ import annotations

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.blocks import Operation
from vramwise.models.lowering import Lowering, lowering
from vramwise.records import record


@record(kw_only=True, eq=False)
class GatheredHeads(Operation):
    """`groups`: heads of keys; `ranks` share each of them."""

    groups: int
    ranks: int


@lowering(GatheredHeads)
def gathered_heads(run: Lowering, op: GatheredHeads, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    tape = run.tape
    own, keys, values = (value.width for value in op.outputs)
    group = [own * op.ranks // op.groups, keys, values]
    grad = any(x.requires_grad for x in (q, k, v))
    whole = tape.new((*q.shape[:-1], op.groups * sum(group)), q.dtype, requires_grad=grad, op="all_gather")
    tape.record("all_gather", [q, k, v], [whole])
    queries, k, v = tape.split(tape.narrow(whole, -1, sum(group)), group)
    return tape.narrow(queries, -1, own), k, tape.contiguous(v)
