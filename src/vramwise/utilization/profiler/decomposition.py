"""Where a rank's time went: compute, exposed communication, exposed copies, other, idle; they add up to the span."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

COMPUTE, COMMUNICATION, COPY, OTHER = range(4)
_COMMUNICATION = re.compile(r"nccl.*Kernel")
_MEMORY = re.compile(r"Memcpy|Memset|dma")
_SYNC = re.compile(r".*Sync")


def named_class(name: str) -> int:
    """The class of a GPU event by its name alone, as Holistic Trace Analysis and others sort them.

    Communication begins with `nccl` and says Kernel, memory begins with Memcpy, Memset or dma, other says Sync,
    everything else is compute, whatever it really does: `classes.py` knows more names.
    """
    if _COMMUNICATION.match(name):
        return COMMUNICATION
    if _MEMORY.match(name):
        return COPY
    return OTHER if _SYNC.match(name) else COMPUTE


class Decomposition(NamedTuple):
    """Nanoseconds of each class over a set of GPU events; unions over all streams, so nothing counts twice.

    span = last end - first start; busy = union; exposed communication runs under no compute, exposed memory under
    neither, other under none of the three: compute + exposed + other + idle = span.
    """

    gpu_events: int
    span: int
    busy: int
    compute: int
    comm: int
    memory: int
    comm_compute_overlap: int
    exposed_comm: int
    exposed_memory: int
    other: int
    n_compute: int
    n_comm: int
    n_memory: int
    n_other: int
    sum_compute: int
    sum_comm: int
    sum_memory: int

    @property
    def idle(self) -> int:
        """Nanoseconds of the span in which nothing ran."""
        return self.span - self.busy

    def to_dict(self) -> dict[str, object]:
        """Microseconds (`_us`), shares in percent and counts, as `vramwise profile --json` prints them."""
        times = ["span", "busy", "idle", "compute", "comm", "memory", "comm_compute_overlap"]
        times += ["exposed_comm", "exposed_memory", "other"]
        return {
            "gpu_events": self.gpu_events,
            **{f"{name}_us": getattr(self, name) / NS_PER_US for name in times},
            "idle_pct": percent(self.idle, self.span),
            "compute_pct": percent(self.compute, self.span),
            "comm_pct_of_span": percent(self.comm, self.span),
            "exposed_comm_pct_of_span": percent(self.exposed_comm, self.span),
            "exposed_memory_pct_of_span": percent(self.exposed_memory, self.span),
            "overlap_pct_of_comm": percent(self.comm_compute_overlap, self.comm),
            "overlap_pct_of_compute": percent(self.comm_compute_overlap, self.compute),
            **{f"n_{name}": getattr(self, f"n_{name}") for name in ("compute", "comm", "memory", "other")},
            **{f"sum_{name}_us": getattr(self, f"sum_{name}") / NS_PER_US for name in ("compute", "comm", "memory")},
        }


def decompose(events: GpuEvents, classes: Integers) -> Decomposition:
    """The decomposition of `events`, each of the class beside it (COMPUTE, COMMUNICATION, COPY or OTHER)."""
    start, end = events.start, events.end
    chosen = [classes == each for each in (COMPUTE, COMMUNICATION, COPY, OTHER)]
    compute, comm, memory, other = (intervals.union(start[mask], end[mask]) for mask in chosen)
    under_comm = intervals.joined(compute, comm)
    under_memory = intervals.joined(under_comm, memory)
    busy = intervals.length(intervals.joined(under_memory, other))
    return Decomposition(
        gpu_events=len(events),
        span=int(end.max() - start.min()) if len(events) else 0,
        busy=busy,
        compute=intervals.length(compute),
        comm=intervals.length(comm),
        memory=intervals.length(memory),
        comm_compute_overlap=intervals.intersection(compute, comm),
        exposed_comm=intervals.length(under_comm) - intervals.length(compute),
        exposed_memory=intervals.length(under_memory) - intervals.length(under_comm),
        other=busy - intervals.length(under_memory),
        n_compute=int(chosen[0].sum()),
        n_comm=int(chosen[1].sum()),
        n_memory=int(chosen[2].sum()),
        n_other=int(chosen[3].sum()),
        sum_compute=int(events.duration[chosen[0]].sum()),
        sum_comm=int(events.duration[chosen[1]].sum()),
        sum_memory=int(events.duration[chosen[2]].sum()),
    )


def classes_by_name(recording: Recording, events: GpuEvents) -> Integers:
    """`named_class` of each event."""
    from vramwise.utilization.profiler.columns import np

    return np.array([named_class(name) for name in recording.names] or [COMPUTE], dtype=np.int64)[events.name]


def percent(part: float, whole: float) -> float | None:
    """A share in percent with two decimals; None of nothing."""
    return round(100 * part / whole, 2) if whole else None
