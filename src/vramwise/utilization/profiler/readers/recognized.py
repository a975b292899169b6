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
from vramwise.utilization.profiler.readers.wire import BadWire, fields, file_varint, message_of
from vramwise.utilization.profiler.trace import TraceFile, no_text

KNOWN = "expected an export of Nsight Systems (nsys export --type sqlite) or a rocpd database"
MOST_GPUS = 4096
VIEWED = (
    "a Perfetto trace (.pftrace), made to be viewed: of rocprofv3 give the rocpd database (*_results.db, its default) "
    "or --output-format json, of torch.profiler what export_chrome_trace writes"
)
PACKET = b"\x0a"
"""The key of `packet`, the only field of Perfetto's Trace (protos/perfetto/trace/trace.proto)."""
OF_PACKETS = {3: "trusted_uid", 8: "timestamp", 10: "trusted_packet_sequence_id"}
"""Whole numbers, of which nearly every packet has one (protos/perfetto/trace/trace_packet.proto)."""
PACKETS_LOOKED_AT = 8


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
        if is_perfetto(path):
            raise SourceError(f"{clipped(str(path), 200)}: {VIEWED}")
        return None
    planes = xplane.device_planes(path)
    return [
        TraceFile(_said(path, plane, len(planes)), size, no_text, _of_plane(path, plane, len(planes)))
        for plane in planes
    ]


def is_perfetto(path: Path) -> bool:
    """Whether the file begins as Perfetto's own traces do: packets that say when, or who wrote them."""
    try:
        with open(path, "rb") as file:
            for _ in range(PACKETS_LOOKED_AT):
                if file.read(1) != PACKET or (size := file_varint(file)) is None:
                    return False
                packet = fields(message_of(file, size, str(path)))
                if any(number in OF_PACKETS and isinstance(value, int) for number, value in packet):
                    return True
    except (OSError, BadWire, SourceError):
        return False
    return False


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
