"""What is kept of one trace: the columns of `schema.TABLES`, some kilobytes for each megabyte that was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from vramwise.utilization.job.parquet import Named
from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.collectives import Stated, ran
from vramwise.utilization.profiler.decomposition import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    Decomposition,
    classes_by_name,
    decompose,
)
from vramwise.utilization.profiler.kernels import kernel, own_class
from vramwise.utilization.profiler.launches import idle_gaps, launch_times
from vramwise.utilization.profiler.recording import ABSENT, KERNEL
from vramwise.utilization.profiler.steps import cpu_steps

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import GpuEvents, Recording

Columns = Mapping[str, Any]
"""The values of each column: a list, an array of NumPy or Named; all are equally long."""
ROWS_AT_ONCE = 65_536
"""Of the large tables, so that their columns are not all held at once."""
OUTSIDE = -1
"""The step of what no step launched."""
STEP_PARTS = ("gpu_events", "span_ns", "compute_ns", "exposed_communication_ns", "copies_ns", "idle_ns")
CAUSES = ("cpu_late", "launch_latency", "waiting", "unknown")
CLASSES = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}
_HOST_IN_NAME = re.compile(r"([A-Za-z][\w.-]*)_\d+\.\d+(?:\.\d+)?\.pt\.trace\.json")
"""`tensorboard_trace_handler` of torch names its files HOST_PID.TIME.pt.trace.json."""


def part_of(recording: Recording) -> Iterator[tuple[str, Columns]]:
    """The columns of each small table; those of a trace without GPU events say only that it is there."""
    events = recording.on_gpu
    launched = launch_times(events, recording.calls)
    classes = classes_by_name(recording, events, own_class)
    steps = _Steps(recording)
    whole = decompose(events.start, events.end, classes)
    gaps = _gap_columns(events, launched, steps, whole.running) if len(events) else {}
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
    for first, rows in _in_parts(gpu.start):
        some = gpu.where(rows)
        yield "events", _of(recording, {
            "number": np.arange(first, first + len(rows)), "name": Named(some.name, recording.names),
            "device": some.device, "stream": some.stream, "correlation": some.correlation,
            "start_ns": some.start, "duration_ns": some.duration,
            "launched_ns": np.where(launched[rows] == ABSENT, some.start, launched[rows]),
        })  # fmt: skip
    for first, rows in _in_parts(calls.start):
        yield "cpu_calls", _of(recording, {
            "number": np.arange(first, first + len(rows)), "name": Named(calls.name[rows], recording.names),
            "correlation": calls.correlation[rows], "start_ns": calls.start[rows],
            "duration_ns": calls.duration[rows],
        })  # fmt: skip


def _in_parts(start: Integers) -> Iterator[tuple[int, Integers]]:
    """Rows in the order of time, some at once, and the place of the first of them."""
    import numpy as np

    order = np.argsort(start, kind="stable")
    for first in range(0, len(order), ROWS_AT_ONCE):
        yield first, order[first : first + ROWS_AT_ONCE]


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


def _step_columns(events: GpuEvents, classes: Integers, steps: _Steps, launched: Integers) -> Columns:
    import numpy as np

    of = steps.of(launched)
    order = np.argsort(of, kind="stable")  # once: looking through all events for each step would take its square
    begins, ends = (np.searchsorted(of[order], steps.numbers, side=side) for side in ("left", "right"))
    parts = np.zeros((len(STEP_PARTS), len(steps.marks)), dtype=np.int64)
    start, ended = events.start, events.end
    for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        inside = order[begin:end]
        found = _parts(decompose(start[inside], ended[inside], classes[inside]))
        parts[:, place] = [found[name] for name in STEP_PARTS]
    return {
        "step": steps.numbers,
        "name": [mark.name for mark in steps.marks],
        "start_ns": [mark.start for mark in steps.marks],
        "cpu_ns": [mark.duration for mark in steps.marks],
        **dict(zip(STEP_PARTS, parts, strict=True)),
    }


def _gap_columns(events: GpuEvents, launched: Integers, steps: _Steps, running: intervals.Spans) -> Columns:
    import numpy as np

    gaps = idle_gaps(events, launched, running)
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

    found = ran(recording, recording.gpu)
    if not len(found.row):
        return {}
    sequenced = bool((found.sequence != ABSENT).all())
    alike: dict[tuple[str, str, str], int] = {}
    like = np.array([alike.setdefault(one[:3], len(alike)) for one in found.stated], dtype=np.int64)[found.place]
    numbers = found.sequence if sequenced else _turns(like)
    kept = np.sort(_last_of_each(like, numbers))
    events = recording.on_gpu
    compute = intervals.union(events.start[classes == COMPUTE], events.end[classes == COMPUTE])
    chosen = recording.gpu.where(found.row[kept])
    launched = launch_times(chosen, recording.calls)
    place = found.place[kept]
    return {
        "step": steps.of(np.where(launched == ABSENT, chosen.start, launched)),
        "group": Named(place, [one.group for one in found.stated]),
        "members": Named(place, [one.members for one in found.stated]),
        "group_size": _of_each(found.stated, place, "group_size"),
        "kind": Named(place, [one.kind for one in found.stated]),
        "number": numbers[kept],
        "sequenced": np.full(len(kept), sequenced),
        "start_ns": chosen.start,
        "duration_ns": chosen.duration,
        "exposed_ns": chosen.duration - (_covered(compute, chosen.end) - _covered(compute, chosen.start)),
        "bytes": _of_each(found.stated, place, "num_bytes"),
    }


def _of_each(stated: Sequence[Stated], place: Integers, what: str) -> object:
    """A number of each, which some may not state."""
    import numpy as np

    numbers = [getattr(one, what) for one in stated]
    if None in numbers:
        return [numbers[one] for one in place.tolist()]
    return np.array(numbers, dtype=np.int64)[place]


def _turns(like: Integers) -> Integers:
    """The place of each among its like."""
    import numpy as np

    order = np.argsort(like, kind="stable")
    in_order = like[order]
    turns = np.empty(len(like), dtype=np.int64)
    turns[order] = np.arange(len(like)) - np.searchsorted(in_order, in_order)
    return turns


def _last_of_each(like: Integers, numbers: Integers) -> Integers:
    """The rows that no later row of the same like and number replaces."""
    import numpy as np

    order = np.lexsort((numbers, like))
    last: Integers = order[np.append((np.diff(like[order]) != 0) | (np.diff(numbers[order]) != 0), True)]
    return last


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
