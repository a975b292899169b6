"""The critical path of a step through CPU calls, kernels and collectives of all ranks, and what a faster part saves.

Every call and GPU event has two points in time, its start and its end, and each point waits for others:

- a call for the call before it on the CPU, one that synchronizes also for the GPU event that ended before it did;
- a kernel for the event before it on its stream, for its launch (by correlation id), and, where neither explains when
  it began, for the event of another stream that had ended last: waits between streams are not in a trace;
- the end of a collective for the arrival of all its ranks (matched as `ranks.across` does), so that its transfer counts
  from the last of them. Clocks of different machines are set by the ends of common collectives.

With its waits every point lies where it was observed. Shorten a part, and the longest path through the same waits says
when the step would end: what is hidden behind something else saves nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from vramwise.errors import UsageError, clipped
from vramwise.utilization.profiler.collectives import collectives
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, percent
from vramwise.utilization.profiler.kernels import own_class
from vramwise.utilization.profiler.launches import launch_times
from vramwise.utilization.profiler.ranks import Key, keyed
from vramwise.utilization.profiler.recording import ABSENT, STREAM_ONLY
from vramwise.utilization.profiler.steps import cpu_steps
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import Recording

PARTS = ("compute", "communication", "copies", "other", "CPU", "launch latency", "waiting")
CPU, LAUNCH, WAITING = 4, 5, 6
_OF_CLASS = {COMPUTE: 0, COMMUNICATION: 1, COPY: 2}
BLOCKING = ("Synchronize", "Memcpy")
"""Calls that may wait for the GPU: copies to pageable memory return once the copy is done."""
BACK_TO_BACK_NS = 10_000
"""A kernel that begins so soon after the one before it on its stream followed that one."""
MOST_POINTS = 4_000_000
TOP_NAMES = 5
WHOLE = "whole trace"


class Wait(NamedTuple):
    """A point comes at least `length` nanoseconds after `point`, for the sake of a part (and a kernel's name)."""

    point: int
    length: int
    part: int
    name: str = ""


class Graph:
    """Points in time with what each waits for; `order` puts every point behind those that it waits for."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.waits: list[list[Wait]] = []
        self.rank: list[str] = []

    def point(self, time: int, rank: str) -> int:
        """A new point that waits for nothing yet."""
        self.times.append(time)
        self.waits.append([])
        self.rank.append(rank)
        return len(self.times) - 1

    def wait(self, point: int, before: int, part: int, *, at_most: int | None = None, name: str = "") -> None:
        """`point` waits for `before`: as long as it took, or at most so long. Left out where `before` came later."""
        length = self.times[point] - self.times[before]
        if length > 0 or (length == 0 and before < point):
            self.waits[point].append(Wait(before, length if at_most is None else min(length, at_most), part, name))

    def order(self) -> list[int]:
        """By time; of points at one time, the one made first."""
        return sorted(range(len(self.times)), key=self.times.__getitem__)

    def ends(self, order: list[int], scale: Callable[[Wait], float]) -> int:
        """When the last point comes if every wait is scaled."""
        new = [0.0] * len(self.times)
        for point in order:
            waits = self.waits[point]
            new[point] = (
                max(new[wait.point] + wait.length * scale(wait) for wait in waits) if waits else self.times[point]
            )
        return round(max(new))

    def path(self, last: int) -> list[tuple[int, Wait]]:
        """From the last point back along the waits that held it up."""
        found = []
        point = last
        while self.waits[point]:
            wait = max(self.waits[point], key=lambda one: (self.times[one.point] + one.length, one.length))
            found.append((point, wait))
            point = wait.point
        return found[::-1]


class _Rank(NamedTuple):
    """One rank's step in a graph: its first point, and start, end and facts of its collectives by what matches them."""

    label: str
    collectives: dict[Key, tuple[int, int, str]]


def critical_path(recordings: Mapping[str, Recording], step: str = "") -> dict[str, Any] | None:
    """The path of one step, named or the one of median length; None without GPU events. Raises UsageError."""
    used = {label: one for label, one in recordings.items() if len(one.on_gpu)}
    if not used:
        return None
    name = _chosen(next(iter(used.values())), step)
    graph = Graph()
    windows = {label: _window(recording, name) for label, recording in used.items()}
    offsets = _offsets(used, windows)
    ranks = [_add_rank(graph, label, used[label], windows[label], offsets[label]) for label in used]
    matched = _join(graph, ranks)
    if len(graph.times) <= len(ranks):
        return None
    return _answer(graph, name, matched)


def _answer(graph: Graph, name: str, matched: int) -> dict[str, Any]:
    order = graph.order()
    last = max(order, key=graph.times.__getitem__)
    path = graph.path(last)
    began = path[0][1].point if path else last
    length = graph.times[last] - graph.times[began]
    parts, names, ranks = [0] * len(PARTS), dict[str, int](), dict[str, int]()
    for point, wait in path:
        parts[wait.part] += wait.length
        ranks[graph.rank[point]] = ranks.get(graph.rank[point], 0) + wait.length
        if wait.name:
            names[wait.name] = names.get(wait.name, 0) + wait.length

    def saved(takes: Callable[[Wait], bool], share: float) -> float:
        return (graph.times[last] - graph.ends(order, lambda wait: share if takes(wait) else 1.0)) / NS_PER_US

    def row(label: str, on_path: int, takes: Callable[[Wait], bool]) -> dict[str, Any]:
        return {"what": label, "on_path_us": on_path / NS_PER_US, "pct": percent(on_path, length),
                "twice_as_fast_saves_us": saved(takes, 0.5), "saves_at_most_us": saved(takes, 0.0)}  # fmt: skip

    present = {wait.part for waits in graph.waits for wait in waits if wait.length} - {WAITING}
    top = sorted(names.items(), key=lambda item: -item[1])[:TOP_NAMES]
    return {
        "step": name,
        "length_us": length / NS_PER_US,
        "matched_collectives": matched,
        "ranks": {rank: time / NS_PER_US for rank, time in ranks.items()},
        "waiting_us": parts[WAITING] / NS_PER_US,
        "parts": [row(PARTS[part], parts[part], lambda wait, part=part: wait.part == part) for part in sorted(present)],  # type: ignore[misc]
        "kernels": [row(kernel, time, lambda wait, kernel=kernel: wait.name == kernel) for kernel, time in top],  # type: ignore[misc]
    }  # fmt: skip


def _chosen(recording: Recording, step: str) -> str:
    marks = {mark.name: mark.duration for mark in cpu_steps(recording)}
    if not step:
        ordered = sorted(marks, key=marks.__getitem__)
        return ordered[len(ordered) // 2] if ordered else WHOLE
    for name in marks:
        if step in (name, name.rpartition("#")[2]):
            return name
    known = ", ".join(list(marks)[:8]) or "none"
    raise UsageError(f'--critical-path: no step "{clipped(step, 40)}" in the trace (it has: {clipped(known, 160)})')


def _window(recording: Recording, name: str) -> tuple[int, int]:
    for mark in cpu_steps(recording):
        if mark.name == name:
            return mark.start, mark.start + mark.duration
    events, calls = recording.on_gpu, recording.calls
    return int(min([events.start.min(), *calls.start[:].tolist()])), int(events.end.max()) + 1


def _offsets(recordings: Mapping[str, Recording], windows: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """What to take from each rank's times: collectives end together; without any, steps begin together."""
    tables = {label: keyed(collectives(one, one.gpu), _sequenced(one)) for label, one in recordings.items()}
    first = next(iter(recordings))
    base = windows[first][0]
    offsets = {}
    for label, table in tables.items():
        shared = [one.start + one.duration - (tables[first][key].start + tables[first][key].duration)
                  for key, one in table.items() if key in tables[first]]  # fmt: skip
        offsets[label] = base + (round(median(shared)) if shared else windows[label][0] - base)
    return offsets


def _sequenced(recording: Recording) -> bool:
    return bool(recording.collectives) and all(one.sequence is not None for one in recording.collectives)


def _add_rank(graph: Graph, label: str, recording: Recording, window: tuple[int, int], offset: int) -> _Rank:
    import numpy as np

    begin, end = window
    launched = launch_times(recording.gpu, recording.calls)
    began = np.where(launched == ABSENT, recording.gpu.start, launched)
    on_gpu = recording.gpu.kind != STREAM_ONLY
    rows = np.flatnonzero(on_gpu & (began >= begin) & (began < end))
    rows = rows[np.argsort(recording.gpu.start[rows], kind="stable")]
    inside = np.flatnonzero((recording.calls.start >= begin) & (recording.calls.start < end))
    if 2 * (len(rows) + len(inside)) + len(graph.times) > MOST_POINTS:
        raise UsageError("--critical-path: the step has too many events; name a shorter one")
    root = graph.point(begin - offset, label)
    gpu = [
        (int(recording.gpu.start[row]) - offset, max(1, int(recording.gpu.duration[row])), row) for row in rows.tolist()
    ]
    calls = _add_calls(
        graph, label, recording, inside[np.argsort(recording.calls.start[inside], kind="stable")].tolist(), offset, root
    )
    points = _add_events(graph, label, recording, gpu, calls, root)
    _synchronize(graph, calls, points)
    found = {}
    for key, one in keyed(collectives(recording, recording.gpu), _sequenced(recording)).items():
        at = points.get((one.start - offset, max(1, one.duration)))
        if at is not None:
            found[key] = at
    return _Rank(label, found)


def _add_calls(
    graph: Graph, label: str, recording: Recording, rows: list[int], offset: int, root: int
) -> dict[int, tuple[int, int, bool]]:
    """Points of the calls by correlation: start, end, and whether the call waits for the GPU."""
    found: dict[int, tuple[int, int, bool]] = {}
    before = latest = root
    for row in rows:
        start, duration = int(recording.calls.start[row]) - offset, max(1, int(recording.calls.duration[row]))
        name = recording.names[recording.calls.name[row]]
        waits = any(word in name for word in BLOCKING)
        first = graph.point(start, label)
        # a call of another thread, or one inside another, goes on while this one begins
        graph.wait(first, before if graph.times[before] <= start else latest, CPU)
        latest = first
        last = graph.point(start + duration, label)
        graph.wait(last, first, CPU, at_most=1 if waits else None)
        if graph.times[last] >= graph.times[before]:
            before = last
        found.setdefault(int(recording.calls.correlation[row]), (first, last, waits))
    return found


def _add_events(
    graph: Graph, label: str, recording: Recording, events: list[tuple[int, int, int]],
    calls: dict[int, tuple[int, int, bool]], root: int,
) -> dict[tuple[int, int], tuple[int, int, str]]:  # fmt: skip
    """Points of the GPU events by start and duration: start, end, name."""
    latencies = [start - graph.times[calls[key][0]] for start, _, row in events
                 if (key := int(recording.gpu.correlation[row])) in calls]  # fmt: skip
    usual = max(0, min(latencies, default=0))
    found: dict[tuple[int, int], tuple[int, int, str]] = {}
    on_stream: dict[tuple[int, int], int] = {}
    ended: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    for start, duration, row in events:
        while waiting and waiting[0][0] <= start:
            ended.append(heapq.heappop(waiting))
        name = recording.names[recording.gpu.name[row]]
        part = _OF_CLASS.get(own_class(name), 3)
        first, last = graph.point(start, label), graph.point(start + duration, label)
        stream = int(recording.gpu.device[row]), int(recording.gpu.stream[row])
        call = calls.get(int(recording.gpu.correlation[row]))
        _begin(graph, first, on_stream.get(stream), call and call[0], ended[-1][1] if ended else None, usual, root)
        graph.wait(last, first, part, name=name)
        on_stream[stream] = last
        heapq.heappush(waiting, (start + duration, last))
        found[start, duration] = first, last, name
    return found


def _begin(
    graph: Graph, first: int, before: int | None, call: int | None, other: int | None, usual: int, root: int
) -> None:
    """What the start of a GPU event waits for, one of them for all of the time."""
    start = graph.times[first]
    follows = before is not None and 0 <= start - graph.times[before] <= BACK_TO_BACK_NS
    late = call is not None and (other is None or graph.times[call] >= graph.times[other])
    if before is not None:
        graph.wait(first, before, WAITING, at_most=None if follows and not late else 0)
    if call is not None:
        graph.wait(first, call, LAUNCH, at_most=None if late else usual)
    if other is not None and not late and not follows:
        graph.wait(first, other, WAITING)
    if not graph.waits[first]:
        graph.wait(first, root, WAITING)


def _synchronize(
    graph: Graph, calls: dict[int, tuple[int, int, bool]], points: dict[tuple[int, int], tuple[int, int, str]]
) -> None:
    """A call that synchronizes ends after the GPU event that ended last before it did."""
    ends = sorted((graph.times[last], last) for _, last, _ in points.values())
    for first, last, waits in calls.values():
        if not waits:
            continue
        place = bisect_right(ends, (graph.times[last], len(graph.times))) - 1
        if place >= 0 and ends[place][0] > graph.times[first]:
            graph.wait(last, ends[place][1], WAITING)
        else:
            graph.waits[last].clear()
            graph.wait(last, first, CPU)


def _join(graph: Graph, ranks: list[_Rank]) -> int:
    """The end of a collective waits for the start of it on every rank; how many were matched."""
    if len(ranks) < 2:
        return 0
    shared = set.intersection(*(set(one.collectives) for one in ranks))
    for key in shared:
        ends = [one.collectives[key] for one in ranks]
        arrived = max(graph.times[first] for first, _, _ in ends)
        for _, last, name in ends:
            transfer = graph.times[last] - arrived
            if transfer > 0:
                graph.waits[last] = [Wait(first, transfer, _OF_CLASS[COMMUNICATION], name) for first, _, _ in ends]
    return len(shared)
