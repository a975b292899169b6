"""Holistic Trace Analysis 0.5's figures for a trace, by its own rules (facebookresearch/HolisticTraceAnalysis).

Its rules, which differ from `decomposition`'s in the window and in the rounding:

- an event on a stream is a GPU event, whatever its category; a name that holds Memcpy or Sync is no compute;
- with two or more differently named ProfilerSteps, GPU events count whose launch began before the last step's start,
  where a step's copy on a GPU track that says no stream is a step like any other;
- a trace with fractions of microseconds is rounded: starts up, ends down, so that short kernels get a negative length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, OTHER, named_class, percent
from vramwise.utilization.profiler.launches import among
from vramwise.utilization.profiler.recording import ABSENT
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

_NOT_COMPUTE = re.compile(r"nccl.*Kernel|.*Memcpy|Memset|.*Sync")
ASSERTS = "none: with its own rounding, HTA ends in an AssertionError on this trace"
ROUNDED = "microseconds, starts up and ends down"
WHOLE = "none: the trace has whole microseconds"


def hta_figures(recording: Recording) -> dict[str, object] | None:
    """`get_temporal_breakdown` and `get_comm_comp_overlap` for one rank; None without GPU events.

    Where HTA's own rounding would end in an assertion, the figures are those without rounding, and `rounding` says so.
    """
    rounded = None if recording.whole_microseconds else _figures(recording, rounding=True)
    if rounded is not None and rounded["non_compute_us"] >= 0:
        return {**rounded, "rounding": ROUNDED}
    exact = _figures(recording, rounding=False)
    if exact is None:
        return None
    return {**exact, "rounding": WHOLE if recording.whole_microseconds else ASSERTS}


def last_step_start(recording: Recording) -> int | None:
    """Start of the last step where HTA leaves it out: with two or more differently named steps."""
    names = {mark.name for mark in recording.steps}
    return max(mark.start for mark in recording.steps) if len(names) > 1 else None


def _figures(recording: Recording, *, rounding: bool) -> dict[str, Any] | None:
    kept = kept_events(recording, rounding=rounding)
    if not len(kept):
        return None
    start, end = rounded_times(kept) if rounding else (kept.start, kept.end)
    classes = hta_classes(recording, kept)
    busy = intervals.union(start, end)
    compute = intervals.union(start[classes == COMPUTE], end[classes == COMPUTE])
    comm = intervals.union(start[classes == COMMUNICATION], end[classes == COMMUNICATION])
    span = int(busy[1][-1] - busy[0][0])
    idle = span - intervals.length(busy)
    computing, communicating = intervals.length(compute), intervals.length(comm)
    return {
        "kernel_time_us": span / NS_PER_US,
        "idle_us": idle / NS_PER_US,
        "compute_us": computing / NS_PER_US,
        "non_compute_us": (span - computing - idle) / NS_PER_US,
        "idle_pct": percent(idle, span),
        "compute_pct": percent(computing, span),
        "non_compute_pct": percent(span - computing - idle, span),
        "overlap_pct_of_comm": percent(_overlap(comm, compute), communicating),
        "gpu_events_kept": len(kept),
    }


def kept_events(recording: Recording, *, rounding: bool) -> GpuEvents:
    """The events on streams whose launch began before the last step, which HTA leaves out."""
    gpu = recording.gpu.where_like(recording.gpu.likes.stream != ABSENT)
    last = last_step_start(recording)
    if last is None:
        return gpu
    calls = recording.calls
    if rounding:  # both up: what begins by the last whole microsecond before the step's is rounded to one before it
        last = -(-last // NS_PER_US) * NS_PER_US - NS_PER_US + 1
    launched = calls.correlation[calls.start < last]
    return gpu.where((gpu.correlation != ABSENT) & among(gpu.correlation, launched))


def rounded_times(events: GpuEvents) -> tuple[Integers, Integers]:
    """Starts rounded up and ends rounded down to microseconds."""
    return rounded_up(events.start), events.end // NS_PER_US * NS_PER_US


def rounded_up(times: Integers) -> Integers:
    """Times rounded up to microseconds."""
    return (times + (NS_PER_US - 1)) // NS_PER_US * NS_PER_US


def hta_classes(recording: Recording, events: GpuEvents) -> Integers:
    """The class of each event by HTA's names."""
    from vramwise.utilization.profiler.columns import np

    kinds = []
    for name in recording.names:
        kind = named_class(name)
        plain = kind in (COMMUNICATION, COPY)
        kinds.append(kind if plain else OTHER if _NOT_COMPUTE.match(name) else COMPUTE)
    return np.array(kinds, dtype=np.int64)[events.name]


def _overlap(comm: intervals.Spans, compute: intervals.Spans) -> int:
    """Time in which exactly one of each runs, swept over starts and ends: intervals of negative length subtract."""
    from vramwise.utilization.profiler.columns import np

    if not any((ends < starts).any() for starts, ends in (comm, compute)):
        return intervals.intersection(comm, compute)
    times = np.concatenate([*comm, *compute])
    ones, twos = np.ones(len(comm[0]), dtype=np.int64), np.full(len(compute[0]), 2, dtype=np.int64)
    change = np.concatenate([ones, -ones, twos, -twos])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(change[order])
    return int(np.diff(times[order])[running[:-1] == 3].sum())
