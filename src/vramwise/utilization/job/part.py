"""What is kept of one trace: the rows of `schema.TABLES`, a few kilobytes for each megabyte that was read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.collectives import Collective, collectives
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, Decomposition, decompose
from vramwise.utilization.profiler.kernels import kernel, own_class
from vramwise.utilization.profiler.launches import idle_gaps, launch_times
from vramwise.utilization.profiler.ranks import keyed
from vramwise.utilization.profiler.recording import ABSENT, KERNEL
from vramwise.utilization.profiler.steps import cpu_steps

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

Rows = list[dict[str, Any]]
OUTSIDE = -1
"""The step of what no step launched."""
CAUSES = ("cpu_late", "launch_latency", "waiting", "unknown")
CLASSES = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}
_HOST_IN_NAME = re.compile(r"([A-Za-z][\w.-]*)_\d+\.\d+(?:\.\d+)?\.pt\.trace\.json")
"""`tensorboard_trace_handler` of torch names its files HOST_PID.TIME.pt.trace.json."""


def part_of(recording: Recording) -> dict[str, Rows]:
    """The rows of every table; those of a trace without GPU events say only that it is there."""
    events = recording.on_gpu
    launched = launch_times(events, recording.calls)
    classes = _classes(recording, events)
    steps = _Steps(recording)
    whole = decompose(events, classes)
    gaps = _gap_rows(events, launched, steps) if len(events) else []
    tables = {
        "traces": [_about(recording) | _parts(whole) | _idle(gaps) | {"communication_ns": whole.comm}],
        "steps": _step_rows(events, classes, steps, launched),
        "gaps": gaps,
        "kernels": _kernel_rows(recording, events),
        "collectives": _collective_rows(recording, events, classes, steps),
        "memory": _memory_rows(recording, steps),
    }
    name = recording.file
    return {table: [{"trace": name, **row} for row in rows] for table, rows in tables.items()}


class _Steps:
    """The steps of the CPU: their numbers, and which of them a time lies in."""

    def __init__(self, recording: Recording) -> None:
        import numpy as np

        self.marks = cpu_steps(recording)
        self.numbers = [_number(mark.name, place) for place, mark in enumerate(self.marks)]
        self._start = np.array([mark.start for mark in self.marks], dtype=np.int64)
        self._end = np.array([mark.start + mark.duration for mark in self.marks], dtype=np.int64)
        self._known = np.array([*self.numbers, OUTSIDE], dtype=np.int64)

    def of(self, times: Integers) -> Integers:
        """The step of each time, OUTSIDE for none."""
        import numpy as np

        place = np.searchsorted(self._start, times, side="right") - 1
        inside = (place >= 0) & (times < np.append(self._end, 0)[place])
        found: Integers = self._known[np.where(inside, place, len(self.marks))]
        return found


def _number(name: str, place: int) -> int:
    found = re.search(r"#(\d{1,15})", name)
    return int(found.group(1)) if found else place


def _about(recording: Recording) -> dict[str, Any]:
    host = _HOST_IN_NAME.match(recording.file.rsplit("/", 1)[-1])
    return {
        "rank": recording.named_rank,
        "host": host.group(1) if host else None,
        "gpu": recording.gpu_name,
        "world_size": recording.world_size,
        "truncated": recording.truncated,
    }


def _parts(of: Decomposition) -> dict[str, int]:
    return {
        "gpu_events": of.gpu_events,
        "span_ns": of.span,
        "compute_ns": of.compute,
        "exposed_communication_ns": of.exposed_comm,
        "copies_ns": of.exposed_memory,
        "other_ns": of.other,
        "idle_ns": of.idle,
    }


def _idle(gaps: Rows) -> dict[str, int]:
    return {f"{cause}_ns": sum(row["ns"] for row in gaps if row["cause"] == cause) for cause in CAUSES}


def _classes(recording: Recording, events: GpuEvents) -> Integers:
    import numpy as np

    return np.array([own_class(name) for name in recording.names] or [COMPUTE], dtype=np.int64)[events.name]


def _step_rows(events: GpuEvents, classes: Integers, steps: _Steps, launched: Integers) -> Rows:
    import numpy as np

    of = steps.of(launched)
    order = np.argsort(of, kind="stable")  # once: looking through all events for each step would take its square
    begins, ends = (np.searchsorted(of[order], steps.numbers, side=side) for side in ("left", "right"))
    rows = []
    for number, mark, begin, end in zip(steps.numbers, steps.marks, begins, ends, strict=True):
        inside = order[begin:end]
        parts = _parts(decompose(events.where(inside), classes[inside]))
        del parts["other_ns"]
        rows.append({"step": number, "name": mark.name, "start_ns": mark.start, "cpu_ns": mark.duration, **parts})
    return rows


def _gap_rows(events: GpuEvents, launched: Integers, steps: _Steps) -> Rows:
    import numpy as np

    gaps = idle_gaps(events, launched)
    of = steps.of(gaps.launched)
    rows = []
    for cause in CAUSES:
        lasted = getattr(gaps, cause)
        some = lasted > 0
        found, place = np.unique(of[some], return_inverse=True)
        sums = np.zeros(len(found), dtype=np.int64)
        np.add.at(sums, place, lasted[some])
        counts = np.bincount(place, minlength=len(found))
        for step, count, total in zip(found.tolist(), counts.tolist(), sums.tolist(), strict=True):
            rows.append({"cause": cause, "step": step, "count": count, "ns": total})
    return rows


def _kernel_rows(recording: Recording, events: GpuEvents) -> Rows:
    import numpy as np

    rows = []
    counts = np.bincount(events.name, minlength=len(recording.names))
    times = np.bincount(events.name, weights=events.duration, minlength=len(recording.names))
    copies = set(events.name[events.kind != KERNEL].tolist())
    for place in np.flatnonzero(counts).tolist():
        name = recording.names[place]
        what = "copy" if place in copies else CLASSES.get(own_class(name), "other")
        category = "memory copies and sets" if place in copies else kernel(name).category
        numbers = {"count": int(counts[place]), "ns": int(times[place])}
        rows.append({"name": name, "class": what, "category": category, **numbers})
    return rows


def _collective_rows(recording: Recording, events: GpuEvents, classes: Integers, steps: _Steps) -> Rows:
    import numpy as np

    found = collectives(recording, recording.gpu)
    if not found:
        return []
    sequenced = all(one.sequence is not None for one in found)
    numbers = {one.row: key[-1] for key, one in keyed(found, sequenced).items()}
    compute = intervals.union(events.start[classes == COMPUTE], events.end[classes == COMPUTE])
    chosen = np.array([one.row for one in found], dtype=np.int64)
    launched = launch_times(recording.gpu.where(chosen), recording.calls)
    start, end = recording.gpu.start[chosen], recording.gpu.end[chosen]
    of = steps.of(np.where(launched == ABSENT, start, launched)).tolist()
    exposed = (end - start - (_covered(compute, end) - _covered(compute, start))).tolist()
    return [
        _collective_row(one, numbers[one.row], sequenced) | {"step": step, "exposed_ns": alone}
        for one, step, alone in zip(found, of, exposed, strict=True)
        if one.row in numbers
    ]


def _collective_row(one: Collective, number: int, sequenced: bool) -> dict[str, Any]:
    return {
        "group": one.group,
        "members": one.members,
        "group_size": one.group_size,
        "kind": one.kind,
        "number": number,
        "sequenced": sequenced,
        "start_ns": one.start,
        "duration_ns": one.duration,
        "bytes": one.num_bytes,
    }


def _covered(spans: intervals.Spans, times: Integers) -> Integers:
    """How much of the spans lies before each time."""
    import numpy as np

    starts, ends = spans
    before = np.concatenate([[0], np.cumsum(ends - starts)])
    place = np.searchsorted(starts, times, side="right")
    inside = np.maximum(0, np.append(ends, 0)[place - 1] - times) * (place > 0)
    covered: Integers = before[place] - inside
    return covered


def _memory_rows(recording: Recording, steps: _Steps) -> Rows:
    rows = []
    for timeline in recording.memory:
        if timeline.allocated is None:
            continue
        at = timeline.allocated.peak_time
        inside: Iterable[str] = (m.name for m in steps.marks if m.start <= at < m.start + m.duration)
        peaks = {"allocated_bytes": timeline.allocated.peak,
                 "reserved_bytes": None if timeline.reserved is None else timeline.reserved.peak}  # fmt: skip
        rows.append({"device": timeline.device, **peaks, "step": next(iter(inside), None)})
    return rows
