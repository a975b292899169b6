"""Why the GPU waited: the CPU was late, the launch took its time, or something else was waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.recording import ABSENT
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import CpuCalls, GpuEvents


class IdleCauses(NamedTuple):
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

    def to_dict(self) -> dict[str, object]:
        """Microseconds."""
        names = ("idle", "cpu_late", "launch_latency", "waiting", "unknown")
        return {"gaps": self.gaps, **{f"{name}_us": getattr(self, name) / NS_PER_US for name in names}}


def launch_times(events: GpuEvents, calls: CpuCalls) -> Integers:
    """When the CPU began the call that launched each event; ABSENT where the trace has none."""
    from vramwise.utilization.profiler.columns import np

    if not len(calls.correlation):
        return np.full(len(events), ABSENT, dtype=np.int64)
    if (looked_up := getattr(calls.correlation, "looked_up", None)) is not None:
        found: Integers = looked_up(calls.start, events.correlation, ABSENT)
        return found
    order = np.argsort(calls.correlation, kind="stable")
    place, there = places_among(events.correlation, calls.correlation[order])
    return np.where(there & (events.correlation != ABSENT), calls.start[order][place], ABSENT)


def among(values: Integers, known: Integers) -> Any:
    """Which of `values` occur in `known`. (NumPy's own isin imports its masked arrays, a tenth of a short run.)"""
    from vramwise.utilization.profiler.columns import np

    if (is_one_of := getattr(values, "is_one_of", None)) is not None:
        return is_one_of(known)
    return places_among(values, np.sort(known))[1] if len(known) else np.zeros(len(values), dtype=bool)


def places_among(values: Integers, ordered: Integers) -> tuple[Any, Any]:
    """Where each value would stand in a sorted column that is not empty, and whether it stands there."""
    from vramwise.utilization.profiler.columns import np

    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return place, ordered[place] == values


def orphans(launched: Integers) -> int:
    """GPU events without a launch in the trace."""
    return int((launched == ABSENT).sum())


class Gaps(NamedTuple):
    """Each gap in which no GPU event ran, in nanoseconds by cause, and when the event that ended it was launched."""

    launched: Integers
    length: Integers
    cpu_late: Integers
    launch_latency: Integers
    waiting: Integers
    unknown: Integers


def idle_gaps(events: GpuEvents, launched: Integers, running: intervals.Spans) -> Gaps:
    """Every gap between the times in which GPU events were `running`, by the event that ended it."""
    from vramwise.utilization.profiler.columns import np

    begins, ends = intervals.gaps(running)
    launch = _launch_of_first(events.start, launched, ends)
    length = ends - begins
    known = launch != ABSENT
    late = np.where(known, np.clip(launch - begins, 0, length), 0)
    in_gap = known & (launch > begins)
    return Gaps(
        launched=launch,
        length=length,
        cpu_late=late,
        launch_latency=np.where(in_gap, length - late, 0),
        waiting=np.where(known & ~in_gap, length, 0),
        unknown=np.where(known, 0, length),
    )


def _launch_of_first(start: Integers, launched: Integers, at: Integers) -> Integers:
    """When the first event was launched that starts at each of these times."""
    from vramwise.utilization.profiler.columns import np

    if (looked_up := getattr(start, "looked_up", None)) is not None:
        found: Integers = looked_up(launched, at, ABSENT)
        return found
    order = np.argsort(start, kind="stable")
    return launched[order[np.searchsorted(start[order], at)] if len(at) else order[:0]]


def idle_causes(events: GpuEvents, launched: Integers, running: intervals.Spans) -> IdleCauses:
    """The sums of `idle_gaps`."""
    gaps = idle_gaps(events, launched, running)
    return IdleCauses(
        gaps=len(gaps.length),
        idle=int(gaps.length.sum()),
        cpu_late=int(gaps.cpu_late.sum()),
        launch_latency=int(gaps.launch_latency.sum()),
        waiting=int(gaps.waiting.sum()),
        unknown=int(gaps.unknown.sum()),
    )
