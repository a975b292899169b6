"""Nsight Systems reports as `nsys export --type sqlite` writes them: one stream of events a process and GPU.

Tables and columns: Nsight Systems exporter documentation (docs.nvidia.com/nsight-systems, "SQLite Export Schema
Reference", 2021.5; exports of 2024 and 2025 name the same). Tables are written only where there is something in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial as bound
from typing import NamedTuple

from vramwise.utilization.profiler.readers.database import Condition, Database
from vramwise.utilization.profiler.readers.rows import Row, RowStream, call_row, gpu_row, step_row

KERNELS, COPIES, SETS, GRAPHS, CALLS = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)
NAMES, RANGES = "StringIds", "NVTX_EVENTS"
ANY_OF = (KERNELS, COPIES, SETS, GRAPHS, CALLS)
COPY_KINDS = dict(enumerate(("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"), start=1))
"""CUpti_ActivityMemcpyKind (CUPTI 12.8, cupti_activity.h)."""
WHOLE_GRAPH = "CUDA graph, traced as a whole (nsys --cuda-graph-trace=node has its kernels)"
THREAD_BITS = 24
"""Serialized ids: the process above 24 bits of thread (exporter documentation, "Common SQLite examples")."""
PID_MASK = 0xFFFFFF
STEP = re.compile(
    r"(?:ProfilerStep#|(?:train(?:ing)?[ _-]?)?(?:step|iter(?:ation)?)[ _:#=-]*)(\d{1,12})", re.IGNORECASE
)


class Process(NamedTuple):
    """A GPU as one process sees it; `pid` is its serialized id without the thread's bits, None where not recorded."""

    pid: int | None
    device: int

    @property
    def shown(self) -> str:
        """What is said beside the file's name."""
        process = "" if self.pid is None else f", process {self.pid & 0xFFFFFF}"
        return f"GPU {self.device}{process}"


def is_nsys(database: Database) -> bool:
    """Whether the tables are those of an export."""
    return any(table in database.tables for table in ANY_OF) and NAMES in database.tables


def processes(database: Database) -> list[Process]:
    """Every GPU of every process with an event."""
    found: set[Process] = set()
    for table in (KERNELS, COPIES, SETS, GRAPHS):
        for device, pid in database.distinct(table, ("deviceId", "globalPid")) or [
            (device, None) for (device,) in database.distinct(table, ("deviceId",))
        ]:
            if isinstance(device, int):
                found.add(Process(pid >> THREAD_BITS if isinstance(pid, int) else None, device))
    if not found and KERNELS in database.tables:
        found.add(Process(None, 0))
    return sorted(found, key=lambda one: (one.pid or 0, one.device))


def rows(database: Database, process: Process, stream: RowStream) -> Iterator[Row]:
    """Kernels, copies, memory sets, graphs, calls and steps of one process's GPU."""
    names = database.texts(NAMES, "value")
    stream.header |= _header(database, process)
    here = [Condition("deviceId", process.device), *_of(process, "globalPid")]
    select = bound(database.rows, where=here)
    where = ("start", "end", "deviceId", "streamId", "correlationId")
    for demangled, short, *said in select(KERNELS, ("demangledName", "shortName", *where)):
        yield _gpu("kernel", names.get(demangled) or names.get(short), said)
    for kind, size, *said in select(COPIES, ("copyKind", "bytes", *where)):
        yield _gpu("gpu_memcpy", f"Memcpy {COPY_KINDS.get(kind, 'of unknown kind')}", said, size)
    for size, *said in select(SETS, ("bytes", *where)):
        yield _gpu("gpu_memset", "Memset (Device)", said, size)
    for _, *said in select(GRAPHS, ("graphId", *where)):
        yield _gpu("kernel", WHOLE_GRAPH, said)
    columns = ("nameId", "start", "end", "correlationId")
    for name, start, end, correlation in database.rows(CALLS, columns, _of(process, "globalTid")):
        yield call_row(names.get(name), start, end, correlation)
    marks = database.rows(RANGES, ("text", "textId", "start", "end"), _of(process, "globalTid"))
    for text, number, start, end in marks:
        step = STEP.fullmatch(text if isinstance(text, str) else names.get(number, ""))
        if step and end is not None:
            yield step_row(step[1], start, end)


def _of(process: Process, column: str) -> list[Condition]:
    return [] if process.pid is None else [Condition(column, process.pid, THREAD_BITS)]


def _gpu(category: str, name: str | None, said: list[object], size: object = None) -> Row:
    start, end, device, stream, correlation = said
    args = {"device": device, "stream": stream, "correlation": correlation, "bytes": size}
    return gpu_row(category, name, start, end, **args)


def _header(database: Database, process: Process) -> dict[str, object]:
    header: dict[str, object] = {}
    for (began,) in database.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",)):
        if isinstance(began, int):
            header["baseTimeNanoseconds"] = began
    gpus = {number: name for number, name in database.rows("TARGET_INFO_GPU", ("id", "name")) if isinstance(name, str)}
    here = [Condition("cudaId", process.device)]
    if process.pid is not None:
        here.append(Condition("pid", process.pid & PID_MASK))
    own = [gpus[gpu] for (gpu,) in database.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId",), here) if gpu in gpus]
    named = set(own) or set(gpus.values())
    if len(named) == 1:
        header["deviceProperties"] = [{"id": process.device, "name": named.pop()}]
    return header
