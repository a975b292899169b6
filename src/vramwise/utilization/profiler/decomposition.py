"""Where a rank's time went: compute, exposed communication, exposed copies, other, idle; they add up to the span."""

from __future__ import annotations

import re
from collections.abc import Callable
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
    neither, other under none of the three: compute + exposed + other + idle = span. `computing` and `running`: when
    compute and when anything ran.
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
    computing: intervals.Spans
    running: intervals.Spans

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


def decompose(start: Integers, end: Integers, classes: Integers) -> Decomposition:
    """The decomposition of GPU events, each of the class beside it (COMPUTE, COMMUNICATION, COPY or OTHER)."""
    chosen = [_of_class(start, end, classes, each) for each in (COMPUTE, COMMUNICATION, COPY, OTHER)]
    compute, comm, memory, other = (intervals.union(*each) for each in chosen)
    under_comm = intervals.joined(compute, comm)
    under_memory = intervals.joined(under_comm, memory)
    running = intervals.joined(under_memory, other)
    computing, communicating, busy = map(intervals.length, (compute, comm, running))
    to_comm, to_memory = intervals.length(under_comm), intervals.length(under_memory)
    return Decomposition(
        gpu_events=len(start),
        span=int(running[1][-1] - running[0][0]) if len(start) else 0,
        busy=busy,
        compute=computing,
        comm=communicating,
        memory=intervals.length(memory),
        comm_compute_overlap=computing + communicating - to_comm,
        exposed_comm=to_comm - computing,
        exposed_memory=to_memory - to_comm,
        other=busy - to_memory,
        n_compute=len(chosen[0][0]),
        n_comm=len(chosen[1][0]),
        n_memory=len(chosen[2][0]),
        n_other=len(chosen[3][0]),
        sum_compute=intervals.length(chosen[0]),
        sum_comm=intervals.length(chosen[1]),
        sum_memory=intervals.length(chosen[2]),
        computing=compute,
        running=running,
    )


def _of_class(start: Integers, end: Integers, classes: Integers, which: int) -> intervals.Spans:
    mask = classes == which
    return (start, end) if mask.all() else (start[mask], end[mask])


def classes_by_name(recording: Recording, events: GpuEvents, class_of: Callable[[str], int] = named_class) -> Integers:
    """The class of each event by its name."""
    from vramwise.utilization.profiler.columns import np

    named = list(map(class_of, recording.names))
    return np.array([named[name] for name in events.likes.name.tolist()] or [COMPUTE], dtype=np.int64)[events.like]


def percent(part: float, whole: float) -> float | None:
    """A share in percent with two decimals; None of nothing."""
    return round(100 * part / whole, 2) if whole else None
