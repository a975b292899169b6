"""A file of every kind that the page takes: its bytes, and what the page calls the kind."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def snapshot() -> bytes:
    event = {"action": "alloc", "addr": 1, "size": 512, "stream": 0, "frames": [], "time_us": 5}
    block = {"address": 1, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 0, "total_size": 2048, "stream": 0, "segment_type": "small", "blocks": [block]}
    return pickle.dumps({"segments": [segment], "device_traces": [[event]], "allocator_settings": {}})


TRACE = (EXAMPLES / "small.pt.trace.json").read_bytes()
FILES = {
    "axolotl.yml": ((EXAMPLES / "files" / "axolotl.yml").read_bytes, "tool's configuration"),
    "docker-compose.yml": ((EXAMPLES / "files" / "docker-compose.yml").read_bytes, "tool's configuration"),
    "train.sbatch": ((EXAMPLES / "files" / "train.sbatch").read_bytes, "tool's configuration"),
    "vllm.log": ((EXAMPLES / "vllm.log").read_bytes, "engine log beside its estimate"),
    "run.log": ((EXAMPLES / "out-of-memory.log").read_bytes, "out of memory"),
    "snapshot.pickle": (snapshot, "memory snapshot"),
    "rank0.pt.trace.json": (lambda: TRACE, "profiler trace"),
    "rank0.pt.trace.json.gz": (lambda: gzip.compress(TRACE), "profiler trace"),
}
