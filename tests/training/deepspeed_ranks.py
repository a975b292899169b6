"""Ranks of real DeepSpeed on the CPU, and the table that rank 0 writes: what the recorders beside this file share."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from typing import Any


def record(
    rank: int, world: int, port: int, script: str, columns: Sequence[str], rows: Iterable[dict[str, Any]]
) -> None:
    """Joins the other ranks and writes `rows`, which every rank goes through, as CSV to standard output from rank 0."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_SIZE": str(world),
                   "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
    import torch

    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed logs to standard output
    torch.set_num_threads(1)
    import deepspeed
    import transformers

    deepspeed.init_distributed("gloo", distributed_port=port)
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    if rank == 0:
        versions = ", ".join(f"{module.__name__} {module.__version__}" for module in (deepspeed, torch, transformers))
        out.write(f"# {versions}: python {script}\n")
        writer.writeheader()
    for row in rows:
        if rank == 0:
            writer.writerow(row)
            out.flush()
