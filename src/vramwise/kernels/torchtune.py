"""torchtune's own attention: keys and values copied to every head of queries in front of the kernel.

torchtune 0.6.1 modules/attention.py: `expand` and `flatten` behind the rotation, so that attention keeps the copies.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.autograd.tensor import Tensor
from vramwise.models.execution import Kernels, Override
from vramwise.models.lowering import Lowering
from vramwise.models.operations.attention import Attention, repeat_kv
from vramwise.models.operations.attention import attention as transformers_attention


def attention(run: Lowering, op: Attention, q: Tensor, k: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    k, v = repeat_kv(run, op, k, v)
    return transformers_attention(run, replace(op, num_key_value_heads=op.num_heads), q, k, v, *others)


RECORD = Kernels(
    name="torchtune",
    overrides=(Override(Attention, attention, "attention"),),
    order=-1,
    source="torchtune 0.6.1 modules/attention.py",
)
