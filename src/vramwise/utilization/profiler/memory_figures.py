"""A memory timeline as the JSON of `vramwise profile` has it: totals with their moments, and the bins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.utilization.profiler.steps import cpu_steps
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.memory_timeline import MemoryTimeline, Totals
    from vramwise.utilization.profiler.recording import Recording


def memory_figures(timeline: MemoryTimeline, recording: Recording, begin: int) -> dict[str, object]:
    """Bytes; times in microseconds from `begin`, the start (ns) of the window, so that those before it are negative.

    The step of a peak is the one in whose annotation on the CPU it lies: the allocator runs there.
    """

    def totals(of: Totals | None) -> dict[str, object] | None:
        if of is None:
            return None
        at_us = (of.peak_time - begin) / NS_PER_US
        step = _step(recording, of.peak_time)
        return {"first": of.first, "peak": of.peak, "last": of.last, "peak_at_us": at_us, "peak_step": step}

    return {
        "device": timeline.device,
        "events": timeline.events,
        "relative": timeline.relative,
        "allocated_bytes": totals(timeline.allocated),
        "reserved_bytes": totals(timeline.reserved),
        "timeline": {
            "bin_us": timeline.bin_ns / NS_PER_US,
            "at_us": ((timeline.start - begin) / NS_PER_US).tolist(),
            "allocated_low_bytes": timeline.low.tolist(),
            "allocated_high_bytes": timeline.high.tolist(),
            "allocated_last_bytes": timeline.last.tolist(),
            "reserved_bytes": None if timeline.reserved is None else timeline.reserved_high.tolist(),
        },
    }


def _step(recording: Recording, time: int) -> str | None:
    return next((m.name for m in cpu_steps(recording) if m.start <= time < m.start + m.duration), None)
