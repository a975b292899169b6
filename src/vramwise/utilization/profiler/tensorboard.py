"""The TensorBoard plugin 0.4.3's three figures for a trace, by its own rules (torch-tb-profiler, kineto/tb_plugin).

The window is the steps': from the first one's start on the CPU to the last one's end there, or the end of the last GPU
event that a step launched if that is later. Copies and memory sets are no utilization there. Equal to the plugin's own
figures on CUDA traces; it links launches of ROCm otherwise, so that its window there can be some percent longer.
"""

from __future__ import annotations

from itertools import chain
from math import fsum
from typing import TYPE_CHECKING

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import percent
from vramwise.utilization.profiler.recording import ABSENT, KERNEL
from vramwise.utilization.profiler.steps import cpu_steps
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording, StepMark

AT_ONCE = 65_536
"""Numbers as Python's own, which take four times as much memory as in a column."""


def tensorboard_figures(recording: Recording, events: GpuEvents, launched: Integers) -> dict[str, object] | None:
    """GPU utilization, estimated SM efficiency and estimated achieved occupancy in percent.

    GPU utilization: union of kernels in the window over the window. SM efficiency: integral over the window of the
    running kernels' blocks per SM, cut at one, over the window. Occupancy: mean by duration over kernels whose launch
    is in the trace. None without kernels; SM efficiency and occupancy None where the trace has no such figures (ROCm).
    `events`: those of the GPU, each with when it was launched beside it.
    """
    from vramwise.utilization.profiler.columns import np

    are_kernels = (events.likes.kind == KERNEL)[events.like]
    kernels = events.where(are_kernels)
    if not len(kernels):
        return None
    begins, ends = kernels.start, kernels.end
    marks = [mark for mark in cpu_steps(recording) if not mark.on_gpu]
    begin = min((mark.start for mark in marks), default=int(begins.min()))
    end = _last_end(events, launched, marks) if marks else int(ends.max())
    window = end - begin
    running = intervals.length(intervals.clipped_to(intervals.union(begins, ends), begin, end))
    rated = kernels.where_like(~np.isnan(kernels.likes.blocks_per_sm))
    return {
        "gpu_utilization_pct": percent(running, window),
        "sm_efficiency_pct": percent(_sm_time(rated, begin, end), window) if len(rated) else None,
        "occupancy_pct": _occupancy(kernels.where(launched[are_kernels] != ABSENT)),
        "window_us": window / NS_PER_US,
    }


def _last_end(events: GpuEvents, launched: Integers, marks: list[StepMark]) -> int:
    cpu_end = max(mark.start + mark.duration for mark in marks)
    inside = (launched >= marks[0].start) & (launched < cpu_end)
    return max(cpu_end, int(events.end[inside].max())) if inside.any() else cpu_end


def _sm_time(kernels: GpuEvents, begin: int, end: int) -> float:
    """Nanoseconds of the window weighted by min(1, blocks per SM of everything that runs)."""
    from vramwise.utilization.profiler.columns import np

    starts, ends = np.clip(kernels.start, begin, end), np.clip(kernels.end, begin, end)
    times = np.concatenate([starts, ends])
    del starts, ends
    order = np.argsort(times, kind="stable")
    times = times[order]
    blocks = kernels.blocks_per_sm
    level = np.cumsum(np.concatenate([blocks, -blocks])[order])[:-1]
    del order, blocks
    return fsum(chain.from_iterable(
        (np.diff(times[at : at + AT_ONCE + 1]) * np.clip(level[at : at + AT_ONCE], 0, 1)).tolist()
        for at in range(0, len(level), AT_ONCE)
    ))  # fmt: skip


def _occupancy(kernels: GpuEvents) -> float | None:
    from vramwise.utilization.profiler.columns import np

    known = kernels.where_like(~np.isnan(kernels.likes.occupancy_pct))
    weights = int(known.duration.sum())
    return round(fsum((known.occupancy_pct * known.duration).tolist()) / weights, 2) if weights else None
