"""Why the GPU waited: the CPU was late, the launch took its time, or something else was waited for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.recording import ABSENT
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import CpuCalls, GpuEvents, Integers


@dataclass(frozen=True)
class IdleCauses:
    """The idle time of a rank in nanoseconds, by what the next GPU event waited for; the parts add up to idle.

    `cpu_late`: before the CPU began the call that launched it (launch-bound: the CPU is the limit).
    `launch_latency`: from that call to the event's start, where the call began inside the gap.
    `waiting`: the call came before the gap: a dependency, a stream wait or the queue (GPU-bound).
    `unknown`: the trace has no launch for it (captured graphs, profiling that began late).
    """

    gaps: int
    idle: int
    cpu_late: int
    launch_latency: int
    waiting: int
    unknown: int

    def to_dict(self) -> dict[str, Any]:
        """Microseconds."""
        names = ("idle", "cpu_late", "launch_latency", "waiting", "unknown")
        return {"gaps": self.gaps, **{f"{name}_us": getattr(self, name) / NS_PER_US for name in names}}


def launch_times(events: GpuEvents, calls: CpuCalls) -> Integers:
    """When the CPU began the call that launched each event; ABSENT where the trace has none."""
    import numpy as np

    if not len(calls.correlation):
        return np.full(len(events), ABSENT, dtype=np.int64)
    order = np.argsort(calls.correlation, kind="stable")
    known, starts = calls.correlation[order], calls.start[order]
    place = np.minimum(np.searchsorted(known, events.correlation), len(known) - 1)
    found = (known[place] == events.correlation) & (events.correlation != ABSENT)
    return np.where(found, starts[place], ABSENT)


def orphans(launched: Integers) -> int:
    """GPU events without a launch in the trace."""
    return int((launched == ABSENT).sum())


def idle_causes(events: GpuEvents, launched: Integers) -> IdleCauses:
    """Every gap in which no GPU event ran, by the event that ended it."""
    import numpy as np

    begins, ends = intervals.gaps(intervals.union(events.start, events.end))
    order = np.argsort(events.start, kind="stable")
    next_event = order[np.searchsorted(events.start[order], ends)] if len(ends) else order[:0]
    launch = launched[next_event]
    length = ends - begins
    known = launch != ABSENT
    late = np.where(known, np.clip(launch - begins, 0, length), 0)
    in_gap = known & (launch > begins)
    return IdleCauses(
        gaps=len(begins),
        idle=int(length.sum()),
        cpu_late=int(late.sum()),
        launch_latency=int((length - late)[in_gap].sum()),
        waiting=int(length[known & ~in_gap].sum()),
        unknown=int(length[~known].sum()),
    )
