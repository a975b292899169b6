"""Live bytes of torch's ring attention on one rank of a group that exchanges nothing: a script, not a test.

    python tests/training/live_ring.py RANKS HEADS GROUPS

Prints the largest sum of live bytes beyond queries, keys, values and the incoming gradient inside of forward and of
backward, and the bytes of the queries and of keys and values. Attention itself is a stand-in that makes outputs of the
real shapes, as flash attention has no kernel for a CPU there. The rank is the last one, which merges whole outputs.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed
from live_fsdp import Live
from torch.distributed.tensor.experimental._context_parallel import _attention
from torch.testing._internal.distributed.fake_pg import FakeStore

BATCH, TOKENS, WIDTH = 1, 4096, 64


def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(query), torch.empty(query.shape[:-1])


def backward(*, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: Any) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def main() -> None:
    ranks, heads, groups = map(int, sys.argv[1:4])
    torch.distributed.init_process_group("fake", rank=ranks - 1, world_size=ranks, store=FakeStore())
    group = torch.distributed.group.WORLD
    assert group is not None

    def made(count: int) -> torch.Tensor:
        return torch.zeros(BATCH, TOKENS, count, WIDTH, dtype=torch.bfloat16).transpose(1, 2)

    query, key, value, gradient = made(heads), made(groups), made(groups), made(heads)
    given = sum(tensor.untyped_storage().nbytes() for tensor in (query, key, value, gradient))
    live = Live()
    with live:
        for tensor in (query, key, value, gradient):
            live.see(tensor)
        live.phase = "forward"
        out, statistics = _attention._templated_ring_attention(group, 2, forward, query, key, value, is_causal=True)
        kept = sum(tensor.untyped_storage().nbytes() for tensor in (out, statistics))
        live.phase = "backward"
        _attention._templated_ring_attention_backward(
            group, 2, backward, gradient, "grad_out", query, key, value, out, statistics, True
        )
    sizes = query.nbytes, key.nbytes + value.nbytes
    print(live.peaks["forward"] - given, live.peaks["backward"] - given - kept, *sizes)


if __name__ == "__main__":
    main()
