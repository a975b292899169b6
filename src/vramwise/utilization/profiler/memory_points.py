"""Every memory event of a trace as plain columns, read with the standard library alone: what a timeline shows."""

from __future__ import annotations

from array import array

from vramwise.utilization.profiler.collect import Collector
from vramwise.utilization.profiler.files import TraceFile
from vramwise.utilization.profiler.stream import stream_of

MOST_POINTS = 5_000_000


class MemoryPoints:
    """The events of one device in their order: nanoseconds, and bytes allocated and reserved after each."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.time_ns, self.allocated, self.reserved = array("q"), array("q"), array("q")
        self.cut = False

    def add(self, time: int, change_bytes: int, allocated_bytes: int, reserved_bytes: int) -> None:
        """One event. Those above MOST_POINTS are counted as cut."""
        if len(self.time_ns) >= MOST_POINTS:
            self.cut = True
            return
        self.time_ns.append(time)
        self.allocated.append(max(0, allocated_bytes))
        self.reserved.append(max(0, reserved_bytes))


def memory_points(file: TraceFile, *, partial: bool = False) -> list[MemoryPoints]:
    """The memory events of a trace by device. Raises SourceError for what is no trace."""
    found: dict[str, MemoryPoints] = {}
    collector = Collector(lambda device: found.setdefault(device, MemoryPoints(device)))
    for batch in stream_of(file, partial=partial).batches():
        collector.take(batch)
    return list(found.values())
