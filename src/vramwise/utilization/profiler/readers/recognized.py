"""Which other profiler wrote a file, told by its content, and a trace for each GPU in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from vramwise.errors import SourceError, clipped
from vramwise.utilization.profiler.readers import chakra, nsys, rocpd, rocprof_csv, xplane
from vramwise.utilization.profiler.readers.database import SQLITE_MAGIC, Database
from vramwise.utilization.profiler.readers.rows import Row, RowStream
from vramwise.utilization.profiler.trace import TraceFile, no_text

KNOWN = "expected an export of Nsight Systems (nsys export --type sqlite) or a rocpd database"
MOST_GPUS = 4096


def other_traces(path: Path, start: bytes) -> list[TraceFile] | None:
    """A trace for each process and GPU of the file; None where it is of no other profiler. Raises SourceError."""
    if start.startswith(SQLITE_MAGIC):
        return _in_database(path)
    size = path.stat().st_size
    if rocprof_csv.is_rocprof_csv(start):
        return [TraceFile(str(path), size, no_text, _of_file(path, rocprof_csv.rows))]
    if chakra.is_chakra(start):
        return [TraceFile(str(path), size, no_text, lambda partial: chakra.stream(path, partial=partial))]
    if not xplane.is_xspace(path):
        return None
    planes = xplane.device_planes(path)
    return [
        TraceFile(_said(path, plane, len(planes)), size, no_text, _of_plane(path, plane, len(planes)))
        for plane in planes
    ]


def _of_file(path: Path, rows: Callable[[Path, RowStream], Iterator[Row]]) -> Callable[[bool], RowStream]:
    return lambda partial: RowStream(str(path), lambda stream: rows(path, stream), partial=partial)


def _of_plane(path: Path, plane: str, planes: int) -> Callable[[bool], RowStream]:
    name = _said(path, plane, planes)
    return lambda partial: RowStream(name, lambda stream: xplane.rows(path, plane, stream), partial=partial)


def _in_database(path: Path) -> list[TraceFile]:
    with closing(Database(path)) as database:
        module: object = nsys if nsys.is_nsys(database) else rocpd if rocpd.is_rocpd(database) else None
        if module is None:
            tables = clipped(", ".join(sorted(database.tables)[:6]) or "none", 120)
            raise SourceError(f"{database.name}: no profiler's tables in this SQLite file ({tables}); {KNOWN}")
        gpus = nsys.processes(database) if module is nsys else rocpd.agents(database)
    if not gpus:
        raise SourceError(f"{database.name}: no GPU event in this file: was it recorded without the GPU?")
    if len(gpus) > MOST_GPUS:
        raise SourceError(f"{database.name}: more than {MOST_GPUS:,} GPUs and processes")
    size = path.stat().st_size
    return [
        TraceFile(_said(path, gpu.shown, len(gpus)), size, no_text, _of_gpu(path, module, gpu, len(gpus)))
        for gpu in gpus
    ]


def _of_gpu(path: Path, module: Any, gpu: Any, gpus: int) -> Callable[[bool], RowStream]:
    def rows(stream: RowStream) -> Iterator[Row]:
        with closing(Database(path)) as database:
            try:
                yield from module.rows(database, gpu, stream)
            except SourceError:
                if not (stream.partial and stream.events_read):
                    raise
                stream.truncated = True

    return lambda partial: RowStream(_said(path, gpu.shown, gpus), rows, partial=partial)


def _said(path: Path, which: str, number: int) -> str:
    return str(path) if number == 1 else f"{path}:{clipped(which, 80)}"
