"""The tables that are kept of a trace, one Parquet file each; times in whole nanoseconds of the trace's own clock.

Every table has `trace`, the file (or the part of it) that the row is from: ranks get their names when all are known.
"""

from __future__ import annotations

import os
from typing import Final

SCHEMA: Final = 2
ABOUT: Final = "job.json"
"""The file that makes a folder one of a job: which schema its tables have, and which release wrote them."""

TEXT, WHOLE, YES_NO = "string", "int64", "bool"

TABLES: Final[dict[str, dict[str, str]]] = {
    "traces": {
        "trace": TEXT, "rank": TEXT, "host": TEXT, "gpu": TEXT, "world_size": WHOLE, "truncated": YES_NO,
        "gpu_events": WHOLE, "span_ns": WHOLE, "compute_ns": WHOLE, "exposed_communication_ns": WHOLE,
        "copies_ns": WHOLE, "other_ns": WHOLE, "idle_ns": WHOLE, "communication_ns": WHOLE,
        "cpu_late_ns": WHOLE, "launch_latency_ns": WHOLE, "waiting_ns": WHOLE, "unknown_ns": WHOLE,
    },
    "steps": {
        "trace": TEXT, "step": WHOLE, "name": TEXT, "start_ns": WHOLE, "cpu_ns": WHOLE, "gpu_events": WHOLE,
        "span_ns": WHOLE, "compute_ns": WHOLE, "exposed_communication_ns": WHOLE, "copies_ns": WHOLE,
        "idle_ns": WHOLE,
    },
    "gaps": {"trace": TEXT, "cause": TEXT, "step": WHOLE, "count": WHOLE, "ns": WHOLE},
    "kernels": {"trace": TEXT, "name": TEXT, "class": TEXT, "category": TEXT, "count": WHOLE, "ns": WHOLE},
    "collectives": {
        "trace": TEXT, "step": WHOLE, "group": TEXT, "members": TEXT, "group_size": WHOLE, "kind": TEXT,
        "number": WHOLE, "sequenced": YES_NO, "start_ns": WHOLE, "duration_ns": WHOLE, "exposed_ns": WHOLE,
        "bytes": WHOLE,
    },
    "memory": {"trace": TEXT, "device": TEXT, "allocated_bytes": WHOLE, "reserved_bytes": WHOLE, "step": TEXT},
    "events": {
        "trace": TEXT, "number": WHOLE, "name": TEXT, "device": WHOLE, "stream": WHOLE, "correlation": WHOLE,
        "start_ns": WHOLE, "duration_ns": WHOLE, "launched_ns": WHOLE,
    },
    "cpu_calls": {
        "trace": TEXT, "number": WHOLE, "name": TEXT, "correlation": WHOLE, "start_ns": WHOLE, "duration_ns": WHOLE,
    },
}  # fmt: skip
"""Columns by table. `step` is the number in a step's name, -1 outside of any; a trace without steps has none.

`traces`: the decomposition of the whole window, with `idle_ns` by cause. `steps`: of what each step launched.
`gaps`: idle time by cause and by the step that launched the event which ended it. `collectives`: `number` is the
sequence number (`sequenced`), else the place among those of one group and kind; `exposed_ns` is what ran under no
compute. `memory`: the highest of a device, and the step in which it was allocated. `events` (kernels, copies, memory
sets) and `cpu_calls` (launches and others with a correlation id) are what a critical path is found in; `launched_ns` is
when the call began that launched an event, without one when the event did; -1 for what the trace does not say.
"""


def is_job(path: str | os.PathLike[str]) -> bool:
    """Whether this is the folder of a job."""
    return os.path.isfile(os.path.join(path, ABOUT)) and os.path.isdir(os.path.join(path, "parts"))
