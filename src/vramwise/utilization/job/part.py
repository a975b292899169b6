"""What is kept of one trace: the columns of `schema.TABLES`, some kilobytes for each megabyte that was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.collectives import collectives
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, Decomposition, decompose
from vramwise.utilization.profiler.kernels import kernel, own_class
from vramwise.utilization.profiler.launches import idle_gaps, launch_times
from vramwise.utilization.profiler.ranks import keyed
from vramwise.utilization.profiler.recording import ABSENT, KERNEL
from vramwise.utilization.profiler.steps import cpu_steps

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

Columns = Mapping[str, Any]
"""The values of each column: a list, an array of NumPy or Named; all are equally long."""
OUTSIDE = -1
"""The step of what no step launched."""
STEP_PARTS = ("gpu_events", "span_ns", "compute_ns", "exposed_communication_ns", "copies_ns", "idle_ns")
CAUSES = ("cpu_late", "launch_latency", "waiting", "unknown")
CLASSES = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}
_HOST_IN_NAME = re.compile(r"([A-Za-z][\w.-]*)_\d+\.\d+(?:\.\d+)?\.pt\.trace\.json")
"""`tensorboard_trace_handler` of torch names its files HOST_PID.TIME.pt.trace.json."""


class Named(NamedTuple):
    """A column of text of which few differ: their places among the different ones."""

    places: Integers
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.places)


def part_of(recording: Recording) -> Iterator[tuple[str, Columns]]:
    """The columns of each small table; those of a trace without GPU events say only that it is there."""
    events = recording.on_gpu
    launched = launch_times(events, recording.calls)
    classes = _classes(recording, events)
    steps = _Steps(recording)
    whole = decompose(events, classes)
    gaps = _gap_columns(events, launched, steps) if len(events) else {}
    about = _about(recording) | _parts(whole) | _idle(gaps) | {"communication_ns": whole.comm}
    yield "traces", _of(recording, {name: [value] for name, value in about.items()})
    yield "steps", _of(recording, _step_columns(events, classes, steps, launched))
    yield "gaps", _of(recording, gaps)
    yield "kernels", _of(recording, _kernel_columns(recording, events))
    yield "collectives", _of(recording, _collective_columns(recording, classes, steps))
    yield "memory", _of(recording, columns_of(_memory_rows(recording, steps)))


def events_of(recording: Recording) -> Iterator[tuple[str, Columns]]:
    """The columns of the large tables: every GPU event and call, for questions about what held up what."""
    import numpy as np

    gpu, calls = recording.on_gpu, recording.calls
    launched = launch_times(gpu, calls)
    order = np.argsort(gpu.start, kind="stable")
    yield "events", _of(recording, {
        "number": np.arange(len(order)), "name": Named(gpu.name[order], recording.names),
        "device": gpu.device[order], "stream": gpu.stream[order],
        "correlation": gpu.correlation[order], "start_ns": gpu.start[order], "duration_ns": gpu.duration[order],
        "launched_ns": np.where(launched == ABSENT, gpu.start, launched)[order],
    })  # fmt: skip
    order = np.argsort(calls.start, kind="stable")
    yield "cpu_calls", _of(recording, {
        "number": np.arange(len(order)), "name": Named(calls.name[order], recording.names),
        "correlation": calls.correlation[order],
        "start_ns": calls.start[order], "duration_ns": calls.duration[order],
    })  # fmt: skip


def _of(recording: Recording, columns: Columns) -> Columns:
    """With the name of the trace in every row."""
    import numpy as np

    count = len(next(iter(columns.values()), ()))
    return {"trace": Named(np.zeros(count, dtype=np.int64), (recording.file,)), **columns}


def columns_of(rows: Sequence[Mapping[str, object]]) -> Columns:
    """Rows as columns, without a value where a row has none."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}


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


def _about(recording: Recording) -> dict[str, object]:
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


def _idle(gaps: Columns) -> dict[str, int]:
    sums = dict.fromkeys(CAUSES, 0)
    for cause, lasted in zip(gaps.get("cause", ()), gaps.get("ns", ()), strict=True):
        sums[cause] += int(lasted)
    return {f"{cause}_ns": total for cause, total in sums.items()}


def _classes(recording: Recording, events: GpuEvents) -> Integers:
    import numpy as np

    return np.array([own_class(name) for name in recording.names] or [COMPUTE], dtype=np.int64)[events.name]


def _step_columns(events: GpuEvents, classes: Integers, steps: _Steps, launched: Integers) -> Columns:
    import numpy as np

    of = steps.of(launched)
    order = np.argsort(of, kind="stable")  # once: looking through all events for each step would take its square
    begins, ends = (np.searchsorted(of[order], steps.numbers, side=side) for side in ("left", "right"))
    parts = np.zeros((len(STEP_PARTS), len(steps.marks)), dtype=np.int64)
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        inside = order[begin:end]
        found = _parts(decompose(events.where(inside), classes[inside]))
        parts[:, place] = [found[name] for name in STEP_PARTS]
    return {
        "step": steps.numbers,
        "name": [mark.name for mark in steps.marks],
        "start_ns": [mark.start for mark in steps.marks],
        "cpu_ns": [mark.duration for mark in steps.marks],
        **dict(zip(STEP_PARTS, parts, strict=True)),
    }


def _gap_columns(events: GpuEvents, launched: Integers, steps: _Steps) -> Columns:
    import numpy as np

    gaps = idle_gaps(events, launched)
    of = steps.of(gaps.launched)
    found: dict[str, list[object]] = {"cause": [], "step": [], "count": [], "ns": []}
    for cause in CAUSES:
        lasted = getattr(gaps, cause)
        some = lasted > 0
        numbers, place = np.unique(of[some], return_inverse=True)
        sums = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(sums, place, lasted[some])
        found["cause"] += [cause] * len(numbers)
        for name, values in (("step", numbers), ("count", np.bincount(place, minlength=len(numbers))), ("ns", sums)):
            found[name] += values.tolist()
    return found


def _kernel_columns(recording: Recording, events: GpuEvents) -> Columns:
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
    return columns_of(rows)


def _collective_columns(recording: Recording, classes: Integers, steps: _Steps) -> Columns:
    import numpy as np

    found = collectives(recording, recording.gpu)
    if not found:
        return {}
    sequenced = all(one.sequence is not None for one in found)
    numbers = {one.row: key[-1] for key, one in keyed(found, sequenced).items()}
    found = [one for one in found if one.row in numbers]
    events = recording.on_gpu
    compute = intervals.union(events.start[classes == COMPUTE], events.end[classes == COMPUTE])
    chosen = np.array([one.row for one in found], dtype=np.int64)
    launched = launch_times(recording.gpu.where(chosen), recording.calls)
    start, end = recording.gpu.start[chosen], recording.gpu.end[chosen]
    return {
        "step": steps.of(np.where(launched == ABSENT, start, launched)),
        "group": [one.group for one in found],
        "members": [one.members for one in found],
        "group_size": [one.group_size for one in found],
        "kind": [one.kind for one in found],
        "number": [numbers[one.row] for one in found],
        "sequenced": [sequenced] * len(found),
        "start_ns": start,
        "duration_ns": end - start,
        "exposed_ns": end - start - (_covered(compute, end) - _covered(compute, start)),
        "bytes": [one.num_bytes for one in found],
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


def _memory_rows(recording: Recording, steps: _Steps) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for timeline in recording.memory:
        if timeline.allocated is None:
            continue
        at = timeline.allocated.peak_time
        inside: Iterable[str] = (m.name for m in steps.marks if m.start <= at < m.start + m.duration)
        peaks = {"allocated_bytes": timeline.allocated.peak,
                 "reserved_bytes": None if timeline.reserved is None else timeline.reserved.peak}  # fmt: skip
        rows.append({"device": timeline.device, **peaks, "step": next(iter(inside), None)})
    return rows
