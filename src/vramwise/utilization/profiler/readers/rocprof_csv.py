"""rocprof's tables: rocprofv3's `*_kernel_trace.csv` with what lies beside it, and `results.csv` of rocprof before it.

Columns: ROCm/rocprofiler-sdk, source/lib/output/generateCSV.cpp (1.0; older ones lack Stream_Id); rocprof 1 of
ROCm/rocprofiler. Beside `PREFIX_kernel_trace.csv` rocprofv3 writes `hip_api_trace`, `memory_copy_trace`,
`marker_api_trace` and `agent_info` under the same prefix, as far as they were asked for.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Final

from vramwise.errors import SourceError, clipped
from vramwise.units import MIB
from vramwise.utilization.profiler.readers.nsys import STEP
from vramwise.utilization.profiler.readers.rocpd import copy_name
from vramwise.utilization.profiler.readers.rows import Row, RowStream, call_row, gpu_row, step_row

SUFFIX: Final = "_kernel_trace.csv"
LONGEST_ROW: Final = MIB
MOST_AGENTS: Final = 4096
_NUMBER: Final = re.compile(r"(?:[A-Za-z]{1,10} )?(\d{1,18})")
"""An agent is a number (`absolute`, and before 6.4), `Agent 4` or `GPU 0`."""

Line = dict[str, str]


def is_rocprof_csv(start: bytes) -> bool:
    """Whether a file begins with the columns of a kernel trace; counters have these too, and a row for each of them."""
    first = start.partition(b"\n")[0]
    three, one = (b"Kernel_Name", b"Start_Timestamp"), (b"KernelName", b"BeginNs")
    return b"Counter_Name" not in first and any(all(name in first for name in names) for names in (three, one))


def rows(path: Path, stream: RowStream) -> Iterator[Row]:
    """Kernels, copies, HIP calls and steps."""
    used: set[int] = set()
    for line in _lines(path, stream):
        row = _kernel(line)
        device = row["args"].get("device") if isinstance(row["args"], dict) else None
        if isinstance(device, int) and len(used) < MOST_AGENTS:
            used.add(device)
        yield row
    if not path.name.endswith(SUFFIX):
        return
    prefix = path.name.removesuffix(SUFFIX)
    beside = {what: path.with_name(f"{prefix}_{what}.csv") for what in
              ("memory_copy_trace", "hip_api_trace", "marker_api_trace", "agent_info")}  # fmt: skip
    for line in _lines(beside["memory_copy_trace"], stream, optional=True):
        yield _copy(line, used)
    for line in _lines(beside["hip_api_trace"], stream, optional=True):
        if correlation := _number(line.get("Correlation_Id")):
            yield call_row(line.get("Function"), *_times(line), correlation)
    for line in _lines(beside["marker_api_trace"], stream, optional=True):
        if step := STEP.fullmatch(line.get("Function", "")):
            yield step_row(step[1], *_times(line))
    names = {
        clipped(line.get("Product_Name") or line.get("Name") or "", 80)
        for line in islice(_lines(beside["agent_info"], stream, optional=True), MOST_AGENTS)
        if line.get("Agent_Type") == "GPU"
    }
    if len(names) == 1:
        stream.header["deviceProperties"] = [{"id": device, "name": name} for name in names for device in used]


def _kernel(line: Line) -> Row:
    """Of either program, by its columns."""
    if "KernelName" in line:
        name, device, queue = line["KernelName"], line.get("gpu-id"), line.get("queue-id")
        correlation, times = None, (_number(line.get("BeginNs")), _number(line.get("EndNs")))
    else:
        name, device = line.get("Kernel_Name", ""), line.get("Agent_Id")
        queue = line.get("Stream_Id") or line.get("Queue_Id")
        correlation, times = _number(line.get("Correlation_Id")), _times(line)
    where = {"device": _number(device), "stream": _number(queue), "correlation": correlation}
    return gpu_row("kernel", name.removesuffix(" [clone .kd]").removesuffix(".kd"), *times, **where)


def _copy(line: Line, gpus: set[int]) -> Row:
    ends = [_number(line.get(f"{end}_Agent_Id")) for end in ("Destination", "Source")]
    device = next((one for one in ends if one in gpus), None)
    where = {"device": device, "stream": _number(line.get("Stream_Id")) or 0,
             "correlation": _number(line.get("Correlation_Id")) or None}  # fmt: skip
    return gpu_row("gpu_memcpy", copy_name(line.get("Direction", "")), *_times(line), **where)


def _times(line: Line) -> tuple[int | None, int | None]:
    return _number(line.get("Start_Timestamp")), _number(line.get("End_Timestamp"))


def _number(text: str | None) -> int | None:
    found = _NUMBER.fullmatch(text or "")
    return int(found[1]) if found else None


def _lines(path: Path, stream: RowStream, *, optional: bool = False) -> Iterator[Line]:
    """The lines of a table by its columns. Raises SourceError for what is no table."""
    if optional and not path.is_file():
        return
    try:
        with open(path, "rb") as file:
            text = _Text(file, path, stream)
            table = csv.reader(text)
            columns = next(table, [])
            for cells in table:
                text.row_bytes = 0
                if len(cells) == len(columns):
                    yield dict(zip(columns, cells, strict=True))
                elif cells:
                    stream.cut_off(f"in {clipped(path.name, 80)}, line {table.line_num:,}")
                    return
    except csv.Error as error:
        raise SourceError(f"{stream.name}: {clipped(path.name, 80)} is no table: {clipped(str(error), 80)}") from None
    except OSError as error:
        raise SourceError(f"{stream.name}: {clipped(path.name, 80)}: {error.strerror or error}") from None


class _Text:
    """The text of a table, line after line; quotes may make many lines one row, which is refused where it is long.

    `row_bytes`: what was read since the reader last had a whole row.
    """

    def __init__(self, file: IO[bytes], path: Path, stream: RowStream) -> None:
        self._file, self._name, self._stream = file, path.name, stream
        self.row_bytes = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(LONGEST_ROW + 1)
        self.row_bytes += len(line)
        if self.row_bytes > LONGEST_ROW:
            raise csv.Error(f"a row of more than {LONGEST_ROW // MIB} MiB")
        if line and not line.endswith(b"\n"):  # the last number may lack digits
            self._stream.cut_off(f"in the last line of {clipped(self._name, 80)}")
        elif line:
            return line.decode("utf-8", "replace")
        raise StopIteration
