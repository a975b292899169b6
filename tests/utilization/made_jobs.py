"""Jobs of many ranks with planted faults, as rows of tables and as traces, a step of 10 ms on every rank.

Each rank computes, takes part in one collective a turn, computes again. Faults: a rank that comes late, a slow link, a
heavy pipeline stage, uneven experts. Every rank's clock begins somewhere else.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from made_traces import ALL_REDUCE, GEMM, document, launch, on_gpu, step

from vramwise.utilization.job.mapped import read_part

TRANSFER_US = 50
STEP_US = 10_000
ALL_TO_ALL = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def job(
    ranks: int = 8, *, steps: int = 3, group_size: int = 4, kind: str = "allreduce", late: dict[int, int] | None = None,
    slow_group: int | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """One trace a rank. `late`: microseconds by which ranks come later than their group's others.

    `kind`: what torch calls the collective. `slow_group`: its transfers take three times as long.
    """
    return [
        _rank(rank, ranks, steps, group_size, kind, late or {}, slow_group) for rank in range(ranks)
    ]  # fmt: skip


def _rank(
    rank: int, ranks: int, steps: int, size: int, kind: str, late: dict[int, int], slow: int | None
) -> dict[str, Any]:  # fmt: skip
    group = rank // size
    members = list(range(group * size, (group + 1) * size))
    last = max((late.get(member, 0) for member in members), default=0)
    own, transfer = late.get(rank, 0), TRANSFER_US * (3 if group == slow else 1)
    said = {
        "Collective name": kind, "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": size,
        "dtype": "BFloat16", "Process Group Name": "tp", "Process Group Ranks": str(members),
    }  # fmt: skip
    events, clock = [], 1000 + 7919 * rank
    for number in range(steps):
        begin = clock + number * STEP_US
        first, arrive = begin + 10, begin + 10 + 4000 + own
        end = begin + 10 + 4000 + last + transfer
        call = 10 * number
        events += [
            step(number, begin, STEP_US),
            launch(begin, call + 1), launch(begin + 3, call + 2), launch(begin + 6, call + 3),
            on_gpu(GEMM, first, arrive - first, call + 1),
            on_gpu(ALL_TO_ALL if kind == "all_to_all" else ALL_REDUCE, arrive, end - arrive, call + 2, stream=20,
                   Seq=number, **said),
            on_gpu(GEMM, end, begin + STEP_US - end, call + 3),
        ]  # fmt: skip
    header = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}
    return document(events, rank=None, **header)


def read_by_a_worker_that_dies(trace: str) -> Any:
    """`read_part`, but the process that first reads a trace whose folder has the file `die` ends."""
    sign = Path(trace).parent / "die"
    if sign.exists():
        sign.unlink()
        os._exit(1)
    return read_part(trace)


def slow(trace: str) -> Any:
    """`read_part`, never soon."""
    time.sleep(0.2)
    return read_part(trace)


def dies(trace: str) -> Any:
    """Ends whatever process reads it."""
    os._exit(1)
