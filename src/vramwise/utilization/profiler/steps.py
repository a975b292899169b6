"""One row a profiler step: what its launches did on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vramwise.utilization.profiler.decomposition import decompose
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording, StepMark

_COLUMNS = ("gpu_events", "span_us", "busy_us", "compute_us", "exposed_comm_us", "exposed_memory_us", "idle_us")


def cpu_steps(recording: Recording) -> list[StepMark]:
    """The `ProfilerStep#n` annotations of the CPU in the order of time; the GPU's copies where there are no others."""
    marks = [mark for mark in recording.steps if not mark.on_gpu] or list(recording.steps)
    return sorted(marks, key=lambda mark: mark.start)


def step_count(recording: Recording) -> int:
    """Differently named steps."""
    return len({mark.name for mark in recording.steps})


def step_table(
    recording: Recording, events: GpuEvents, classes: Integers, launched: Integers
) -> list[dict[str, object]]:  # fmt: skip
    """For each step its length on the CPU and the decomposition of the GPU events that it launched.

    An event belongs to the step in which the CPU launched it, whenever it ran.
    """
    from vramwise.utilization.profiler.columns import np

    start, ended = events.start, events.end
    order = np.argsort(launched, kind="stable")
    in_order = launched[order]  # once: looking through all events for each step would take its square
    rows = []
    for mark in cpu_steps(recording):
        begin, end = np.searchsorted(in_order, (mark.start, mark.start + mark.duration))
        inside = order[begin:end]
        figures = decompose(start[inside], ended[inside], classes[inside]).to_dict()
        rows.append(
            {"step": mark.name, "cpu_us": mark.duration / NS_PER_US, **{name: figures[name] for name in _COLUMNS}}
        )
    return rows
