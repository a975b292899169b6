"""`vramwise profile --compat hta`: HTA 0.5's own tables, with its names and its rules (see `hta`).

`get_temporal_breakdown`, `get_comm_comp_overlap`, the kernel types of `get_gpu_kernel_breakdown` and
`get_idle_time_breakdown` with its usual delay of 30 (documented as nanoseconds, compared with microseconds).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY
from vramwise.utilization.profiler.hta import ROUNDED, hta_classes, hta_figures, kept_events, rounded_times, rounded_up
from vramwise.utilization.profiler.launches import launch_times
from vramwise.utilization.profiler.recording import ABSENT, STREAM_ONLY
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

CONSECUTIVE_KERNEL_DELAY_US = 30
_TYPES = ((COMPUTE, "COMPUTATION"), (COMMUNICATION, "COMMUNICATION"), (COPY, "MEMORY"))
_CATEGORIES = ("host_wait", "kernel_wait", "other")


def hta_tables(recording: Recording) -> dict[str, object] | None:
    """HTA's tables of one rank; None without GPU events. Times in microseconds, shares of time as HTA rounds them."""
    figures = hta_figures(recording)
    if figures is None:
        return None
    rounding = figures["rounding"] == ROUNDED
    events = kept_events(recording, rounding=rounding)
    start, end = rounded_times(events) if rounding else (events.start, events.end)
    parts = ("idle", "compute", "non_compute")
    breakdown = {f"{name}_time(us)": figures[f"{name}_us"] for name in parts}
    breakdown["kernel_time(us)"] = figures["kernel_time_us"]
    breakdown |= {f"{name}_time_pctg": figures[f"{name}_pct"] for name in parts}
    return {
        "temporal_breakdown": breakdown,
        "comp_comm_overlap_pctg": figures["overlap_pct_of_comm"],
        "kernel_breakdown": _kernel_types(hta_classes(recording, events), start, end),
        "idle_time_breakdown": _idle_times(recording, events, start, end, rounding=rounding),
        "rounding": figures["rounding"],
    }


def _kernel_types(classes: Integers, start: Integers, end: Integers) -> list[dict[str, object]]:
    """Time in which exactly the types of a name ran, the longest first, and its share of the time in which any ran."""
    from vramwise.utilization.profiler.columns import np

    times, changes = [], []
    for place, (which, _) in enumerate(_TYPES):
        chosen = classes == which
        starts, ends = intervals.union(start[chosen], end[chosen])
        times += [starts, ends]
        changes += [np.full(len(starts), 1 << place), np.full(len(ends), -(1 << place))]
    time, change = np.concatenate(times), np.concatenate(changes)
    order = np.argsort(time, kind="stable")
    running, length = np.cumsum(change[order])[:-1], np.diff(time[order])
    sums = {}
    for mask in range(1, 1 << len(_TYPES)):
        if (running == mask).any():
            name = " overlapping ".join(name for place, (_, name) in enumerate(_TYPES) if mask >> place & 1)
            sums[name] = int(length[running == mask].sum())
    total = sum(sums.values())
    return [
        {"kernel_type": name, "sum": spent / NS_PER_US, "percentage": round(100 * spent / total, 1) if total else None}
        for name, spent in sorted(sums.items(), key=lambda item: -item[1])
    ]


def _idle_times(
    recording: Recording, events: GpuEvents, start: Integers, end: Integers, *, rounding: bool
) -> list[dict[str, object]]:
    """Per stream the time between one event's end and the next one's start, by HTA's reasons.

    host_wait: the call that launched it came after the end before it; kernel_wait: else, and the gap is short. Events
    that overlap on one stream count as a negative gap, as they do there.
    """
    from vramwise.utilization.profiler.columns import np

    launched = launch_times(events, recording.calls)
    launched = np.where(launched == ABSENT, ABSENT, rounded_up(launched) if rounding else launched)
    real = events.kind != STREAM_ONLY
    rows = []
    for stream in dict.fromkeys(events.stream[real].tolist()):
        chosen = np.flatnonzero(real & (events.stream == stream))
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
        before, gap = end[chosen][:-1], start[chosen][1:] - end[chosen][:-1]
        call = launched[chosen][1:]
        late = (call != ABSENT) & (call > before)
        short = ~late & (gap < CONSECUTIVE_KERNEL_DELAY_US * NS_PER_US)
        sums = [int(gap[mask].sum()) for mask in (late, short, ~late & ~short)]
        total = sum(sums)
        rows += [
            {"stream": stream, "idle_category": name, "idle_time": spent / NS_PER_US,
             "idle_time_ratio": round(spent / total, 2) if total else None}
            for name, spent in zip(_CATEGORIES, sums, strict=True)
        ]  # fmt: skip
    return rows
