"""Every memory event of a trace as plain columns: what a timeline shows."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from vramwise.utilization.profiler.collect import read_trace
from vramwise.utilization.profiler.recording import Recording
from vramwise.utilization.profiler.trace import TraceFile

if TYPE_CHECKING:
    from vramwise.utilization.profiler.memory_timeline import Bytes

MOST_POINTS = 5_000_000


class MemoryPoints:
    """The events of one device in their order: nanoseconds, and bytes allocated and reserved after each."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.time_ns, self.allocated, self.reserved = array("q"), array("q"), array("q")
        self.cut = False

    def add(self, times: Bytes, changes: Bytes, allocated: Bytes, reserved: Bytes) -> None:
        """Some events. Those above MOST_POINTS are counted as cut."""
        free = MOST_POINTS - len(self.time_ns)
        self.cut = self.cut or len(times) > free
        self.time_ns.extend(times[:free])
        self.allocated.extend(max(0, one) for one in allocated[:free])
        self.reserved.extend(max(0, one) for one in reserved[:free])


def read_with_memory(file: TraceFile, *, partial: bool = False) -> tuple[Recording, list[MemoryPoints]]:
    """A trace and its memory events by device, in one pass. Raises SourceError for what is no trace."""
    found: dict[str, MemoryPoints] = {}
    recording = read_trace(file, partial=partial, memory_of=lambda name: found.setdefault(name, MemoryPoints(name)))
    return recording, list(found.values())
