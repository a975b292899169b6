"""The critical path of a step through CPU calls, kernels and collectives of all ranks, and what a faster part saves.

Every call and GPU event has two points in time, its start and its end, and each point waits for others:

- a call for the call before it on the CPU, one that synchronizes also for the GPU event that ended before it did;
- a kernel for the event before it on its stream, for its launch (by correlation id), and, where neither explains when
  it began, for the event of another stream that had ended last: waits between streams are not in a trace;
- the end of a collective for the arrival of all its ranks (matched as `ranks.across` does, also of a group of few of
  them), so that its transfer counts from the last. Clocks of different machines are set by the ends of collectives
  that two of them have in common, from rank to rank where the first has none with all.

With its waits every point lies where it was observed. Shorten a part, and the longest path through the same waits says
when the step would end: what is hidden behind something else saves nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from vramwise.errors import UsageError, clipped
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, percent
from vramwise.utilization.profiler.kernels import own_class
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.observed import Observed
    from vramwise.utilization.profiler.ranks import Key

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
Calls = dict[int, tuple[int, int, bool]]
"""By correlation id: the points of a call's start and end, and whether it waits for the GPU."""
Events = dict[tuple[int, int], tuple[int, int, str]]
"""By start and duration: the points of a GPU event's start and end, and its name."""


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


def critical_path(step: str, ranks: Mapping[str, Observed]) -> dict[str, object] | None:
    """The path of one step by what each rank did in it; None where nothing did.

    Raises UsageError for a step that the trace has not.
    """
    graph = Graph()
    held = _held_together(ranks)
    offsets = _offsets(ranks, held)
    added = {label: _add_rank(graph, label, one, offsets[label]) for label, one in ranks.items()}
    matched = _join(graph, added, held)
    if len(graph.times) <= len(ranks):
        return None
    return _answer(graph, step, matched)


def _answer(graph: Graph, name: str, matched: int) -> dict[str, object]:
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

    def row(label: str, on_path: int, takes: Callable[[Wait], bool]) -> dict[str, object]:
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


def chosen_step(lengths: Mapping[str, int], step: str) -> str:
    """The name of the step that is asked for, by its name or number; the one of median length.

    Raises UsageError for one that the trace has not.
    """
    if not step:
        ordered = sorted(lengths, key=lengths.__getitem__)
        return ordered[len(ordered) // 2] if ordered else WHOLE
    for name in lengths:
        if step in (name, name.rpartition("#")[2]):
            return name
    known = ", ".join(list(lengths)[:8]) or "none"
    raise UsageError(f'--critical-path: no step "{clipped(step, 40)}" in the trace (it has: {clipped(known, 160)})')


def _held_together(ranks: Mapping[str, Observed]) -> dict[Key, list[str]]:
    """The ranks of each collective that at least two ran: no more than its group has, of no named group all."""
    held: dict[Key, list[str]] = defaultdict(list)
    counts: dict[tuple[str, str, str], set[int]] = defaultdict(set)
    sequenced = all(one.sequenced for one in ranks.values())
    for label, one in ranks.items():
        for key in one.collectives:
            held[key].append(label)
        for like, count in Counter(key[:3] for key in one.collectives).items():
            counts[like].add(count)
    return {
        key: labels
        for key, labels in held.items()
        if 2 <= len(labels) <= (ranks[labels[0]].collectives[key].group_size or len(ranks))
        and (key[0] or len(labels) == len(ranks))
        and (sequenced or len(counts[key[:3]]) == 1)  # else the order in which they ran says nothing
    }


def _offsets(ranks: Mapping[str, Observed], held: Mapping[Key, list[str]]) -> dict[str, int]:
    """What to take from each rank's times: collectives end together; without any, steps begin together."""
    offsets: dict[str, int] = {}
    for first in ranks:
        if first in offsets:
            continue
        offsets[first] = ranks[first].begin  # the first of those that have collectives in common
        reached = deque([first])
        while reached:
            placed = reached.popleft()
            apart: dict[str, list[int]] = defaultdict(list)
            for key, one in ranks[placed].collectives.items():
                for label in held.get(key, ()):
                    if label not in offsets:
                        apart[label].append(ranks[label].collectives[key].end - one.end)
            for label, shifts in apart.items():
                offsets[label] = offsets[placed] + round(median(shifts))
                reached.append(label)
    return offsets


def _add_rank(graph: Graph, label: str, observed: Observed, offset: int) -> dict[Key, tuple[int, int, str]]:
    """A rank's points; of its collectives start, end and name."""
    if 2 * (len(observed.start) + len(observed.call_start)) + len(graph.times) > MOST_POINTS:
        raise UsageError("--critical-path: the step has too many events; name a shorter one")
    root = graph.point(observed.begin - offset, label)
    calls = _add_calls(graph, label, observed, offset, root)
    points = _add_events(graph, label, observed, offset, calls, root)
    _synchronize(graph, calls, points)
    found = {}
    for key, one in observed.collectives.items():
        at = points.get((one.start - offset, max(1, one.end - one.start)))
        if at is not None:
            found[key] = at
    return found


def _add_calls(graph: Graph, label: str, observed: Observed, offset: int, root: int) -> Calls:
    """Points of the calls by correlation."""
    found: Calls = {}
    before = latest = root
    columns = (observed.call_start, observed.call_duration, observed.call_name, observed.call_correlation)
    for began, lasted, named, correlation in zip(*(column.tolist() for column in columns), strict=True):
        start, duration, name = began - offset, max(1, lasted), observed.names[named]
        waits = any(word in name for word in BLOCKING)
        first = graph.point(start, label)
        # a call of another thread, or one inside another, goes on while this one begins
        graph.wait(first, before if graph.times[before] <= start else latest, CPU)
        latest = first
        last = graph.point(start + duration, label)
        graph.wait(last, first, CPU, at_most=1 if waits else None)
        if graph.times[last] >= graph.times[before]:
            before = last
        found.setdefault(correlation, (first, last, waits))
    return found


def _add_events(graph: Graph, label: str, observed: Observed, offset: int, calls: Calls, root: int) -> Events:
    """Points of the GPU events by start and duration."""
    columns = (observed.start - offset, observed.duration, observed.name, observed.device, observed.stream,
               observed.correlation)  # fmt: skip
    events = list(zip(*(column.tolist() for column in columns), strict=True))
    latencies = [start - graph.times[calls[correlation][0]] for start, *_, correlation in events
                 if correlation in calls]  # fmt: skip
    usual = max(0, min(latencies, default=0))
    found: Events = {}
    on_stream: dict[tuple[int, int], int] = {}
    ended: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    for start, lasted, named, device, stream, correlation in events:
        while waiting and waiting[0][0] <= start:
            ended.append(heapq.heappop(waiting))
        name, duration = observed.names[named], max(1, lasted)
        part = _OF_CLASS.get(own_class(name), 3)
        first, last = graph.point(start, label), graph.point(start + duration, label)
        call = calls.get(correlation)
        before, other = on_stream.get((device, stream)), ended[-1][1] if ended else None
        _begin(graph, first, before, call and call[0], other, usual, root)
        graph.wait(last, first, part, name=name)
        on_stream[device, stream] = last
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


def _synchronize(graph: Graph, calls: Calls, points: Events) -> None:
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


def _join(graph: Graph, ranks: Mapping[str, Mapping[Key, tuple[int, int, str]]], held: Mapping[Key, list[str]]) -> int:
    """The end of a collective waits for the start of it on every rank that ran it; how many were matched."""
    matched = 0
    for key, labels in held.items():
        ends = [ranks[label][key] for label in labels if key in ranks[label]]
        if len(ends) < 2:
            continue
        matched += 1
        arrived = max(graph.times[first] for first, _, _ in ends)
        for _, last, name in ends:
            transfer = graph.times[last] - arrived
            if transfer > 0:
                graph.waits[last] = [Wait(first, transfer, _OF_CLASS[COMMUNICATION], name) for first, _, _ in ends]
    return matched
