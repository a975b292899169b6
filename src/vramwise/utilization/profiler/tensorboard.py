"""The TensorBoard plugin 0.4.3's three figures for a trace, by its own rules (torch-tb-profiler, kineto/tb_plugin).

The window is the CPU's: from the first step's start to the last step's end, whatever the GPU still does after it.
Copies and memory sets are no utilization there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import intervals
from .decomposition import percent
from .recording import KERNEL
from .steps import cpu_steps

if TYPE_CHECKING:
    from .recording import Recording


def tensorboard_figures(recording: Recording) -> dict[str, Any] | None:
    """GPU utilization, estimated SM efficiency and estimated achieved occupancy in percent.

    GPU utilization: union of kernels in the window over the window. SM efficiency: integral over the window of the
    running kernels' blocks per SM, cut at one, over the window. Occupancy: mean over kernels by duration. None without
    kernels; SM efficiency and occupancy None where the trace has no such figures (ROCm).
    """
    import numpy as np

    kernels = recording.gpu.where(recording.gpu.kind == KERNEL)
    if not len(kernels):
        return None
    marks = [mark for mark in cpu_steps(recording) if not mark.on_gpu]
    begin = min((mark.start for mark in marks), default=int(kernels.start.min()))
    end = max((mark.start + mark.duration for mark in marks), default=int(kernels.end.max()))
    window = end - begin
    running = intervals.length(intervals.clipped_to(intervals.union(kernels.start, kernels.end), begin, end))
    known = ~np.isnan(kernels.blocks_per_sm)
    rated = kernels.where(known)
    return {
        "gpu_utilization_pct": percent(running, window),
        "sm_efficiency_pct": percent(_sm_time(rated, begin, end), window) if known.any() else None,
        "occupancy_pct": _occupancy(kernels),
        "window_us": window / 1000,
    }


def _sm_time(kernels: Any, begin: int, end: int) -> float:
    """Nanoseconds of the window weighted by min(1, blocks per SM of everything that runs)."""
    import numpy as np

    starts, ends = np.clip(kernels.start, begin, end), np.clip(kernels.end, begin, end)
    times = np.concatenate([starts, ends])
    change = np.concatenate([kernels.blocks_per_sm, -kernels.blocks_per_sm])
    order = np.argsort(times, kind="stable")
    level = np.cumsum(change[order])[:-1]
    return float((np.diff(times[order]) * np.clip(level, 0, 1)).sum())


def _occupancy(kernels: Any) -> float | None:
    import numpy as np

    known = ~np.isnan(kernels.occupancy_pct)
    weight = kernels.duration[known]
    return round(float(np.average(kernels.occupancy_pct[known], weights=weight)), 2) if weight.sum() else None
