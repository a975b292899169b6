"""Every memory event of a trace as plain columns: what a timeline shows."""

from __future__ import annotations

from array import array

from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.files import TraceFile
from vramwise.utilization.profiler.recording import Recording

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


def read_with_memory(file: TraceFile, *, partial: bool = False) -> tuple[Recording, list[MemoryPoints]]:
    """A trace and its memory events by device, in one pass. Raises SourceError for what is no trace."""
    found: dict[str, MemoryPoints] = {}
    recording = read_trace(file, partial=partial, memory_of=lambda name: found.setdefault(name, MemoryPoints(name)))
    return recording, list(found.values())
