"""Collectives of one rank: kind, bytes, algorithm and bus bandwidth, as nccl-tests defines them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import percent
from vramwise.utilization.profiler.kernels import kernel
from vramwise.utilization.profiler.launches import places_among
from vramwise.utilization.profiler.recording import ABSENT
from vramwise.utilization.profiler.times import NS_PER_US

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import CollectiveFacts, GpuEvents, Recording

KINDS = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send/receive",
    "send": "send/receive",
    "recv": "send/receive",
    "gather": "gather",
    "scatter": "scatter",
}
DTYPE_BYTES = {
    "float": 4,
    "double": 8,
    "half": 2,
    "bfloat16": 2,
    "long": 8,
    "int": 4,
    "short": 2,
    "char": 1,
    "byte": 1,
    "bool": 1,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Bytes of c10's scalar types, which Kineto writes (lower case)."""


class Collective(NamedTuple):
    """One communication kernel. `num_bytes` is what nccl-tests calls the size; None where the trace says nothing.

    `row`: its place among the recording's GPU events. `members`: the ranks of the group as the trace writes them;
    groups that share no rank may share a name.
    """

    row: int
    kind: str
    group: str
    members: str
    sequence: int | None
    group_size: int | None
    start: int
    duration: int
    num_bytes: int | None

    @property
    def bus_factor(self) -> float | None:
        """Bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
        if not self.group_size:
            return None
        share = (self.group_size - 1) / self.group_size
        if self.kind == "all-reduce":
            return 2 * share
        return share if self.kind in ("all-gather", "reduce-scatter", "all-to-all") else 1.0


class Stated(NamedTuple):
    """What collectives of one kernel and one statement about it have in common."""

    group: str
    members: str
    kind: str
    group_size: int | None
    num_bytes: int | None


class Ran(NamedTuple):
    """Communication kernels in the order in which they started, as columns.

    `row`: their places among the recording's GPU events. `place`: of what each states, in `stated`.
    """

    row: Integers
    sequence: Integers
    place: Integers
    stated: list[Stated]


def ran(recording: Recording, events: GpuEvents) -> Ran:
    """The communication kernels of a recording. `events` are its own, all of them."""
    from vramwise.utilization.profiler.columns import np

    communicates = np.array([kernel(name).communicates for name in recording.names] or [False])
    names = events.name
    rows = np.flatnonzero(communicates[names]) if len(events) else np.zeros(0, dtype=np.int64)
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    told, sequence = _told(recording, rows)
    places: dict[tuple[int, int], int] = {}
    place = [places.setdefault(both, len(places)) for both in zip(names[rows].tolist(), told.tolist(), strict=True)]
    stated = [
        _stated(recording.names[name], None if fact == ABSENT else recording.collectives.facts[fact])
        for name, fact in places
    ]
    return Ran(rows, sequence, np.array(place, dtype=np.int64), stated)


def _told(recording: Recording, rows: Integers) -> tuple[Integers, Integers]:
    """The facts that these events state, and their sequence numbers; ABSENT for none."""
    from vramwise.utilization.profiler.columns import np

    known = recording.collectives
    if not len(known.row):
        return np.full(len(rows), ABSENT, dtype=np.int64), np.full(len(rows), ABSENT, dtype=np.int64)
    place, there = places_among(rows, known.row)
    return np.where(there, known.place[place], ABSENT), np.where(there, known.sequence[place], ABSENT)


def _stated(name: str, facts: CollectiveFacts | None) -> Stated:
    if facts is None:
        return Stated("", "", _kind(name, ""), None, None)
    return Stated(facts.group or "", facts.members or "", _kind(name, facts.collective or ""), facts.group_size,
                  _size(facts))  # fmt: skip


def collectives(recording: Recording, events: GpuEvents) -> list[Collective]:
    """The same one by one."""
    found = ran(recording, events)
    columns = found.row, found.sequence, found.place, events.start[found.row], events.duration[found.row]
    return [
        Collective(row, of.kind, of.group, of.members, None if sequence == ABSENT else sequence, of.group_size,
                   start, duration, of.num_bytes)
        for row, sequence, place, start, duration in zip(*(column.tolist() for column in columns), strict=True)
        for of in (found.stated[place],)
    ]  # fmt: skip


def collective_table(found: Iterable[Collective], compute: intervals.Spans, span: int) -> list[dict[str, object]]:
    """One row a kind: number, time, share of `span` (ns), how much of it ran under `compute`, and bandwidths over those
    whose sizes are known (GB/s, GB = 1e9).

    Shares are of the union of a kind's kernels, so that two at a time count once. Time includes the waiting for the
    slowest rank, so a bandwidth is a floor.
    """
    by_kind: dict[str, list[Collective]] = {}
    for one in found:
        by_kind.setdefault(one.kind, []).append(one)
    rows = [_row(kind, members) | _shares(members, compute, span) for kind, members in by_kind.items()]
    return sorted(rows, key=lambda row: -float(row["sum_us"]))


def _shares(members: list[Collective], compute: intervals.Spans, span: int) -> dict[str, object]:
    from vramwise.utilization.profiler.columns import np

    start = np.array([one.start for one in members], dtype=np.int64)
    running = intervals.union(start, start + np.array([one.duration for one in members], dtype=np.int64))
    time = intervals.length(running)
    return {
        "union_us": time / NS_PER_US,
        "pct_of_span": percent(time, span),
        "overlap_pct": percent(intervals.intersection(running, compute), time),
    }


def _row(kind: str, members: list[Collective]) -> dict[str, Any]:
    sized = [one for one in members if one.num_bytes is not None and one.bus_factor is not None and one.duration > 0]
    nanoseconds = sum(one.duration for one in sized)
    moved = sum(one.num_bytes or 0 for one in sized)
    on_bus = sum((one.num_bytes or 0) * (one.bus_factor or 0.0) for one in sized)
    return {
        "kind": kind,
        "count": len(members),
        "sum_us": sum(one.duration for one in members) / NS_PER_US,
        "sized": len(sized),
        "bytes": moved if sized else None,
        "algorithm_gb_s": round(moved / nanoseconds, 3) if nanoseconds else None,
        "bus_gb_s": round(on_bus / nanoseconds, 3) if nanoseconds else None,
        "group_sizes": sorted({one.group_size for one in members if one.group_size}),
    }


@lru_cache(4096)
def _kind(name: str, stated: str) -> str:
    """The collective that the trace states, else the one in the kernel's name: `ncclDevKernel_Generic` says none."""
    for text in (stated, name):
        plain = re.sub(r"[^a-z]", "", text.lower())
        for word, kind in KINDS.items():
            if word in plain:
                return kind
    return stated or "unnamed"


def _size(facts: CollectiveFacts) -> int | None:
    """Total size as nccl-tests counts it: the gathered output, the unscattered input, the larger of both elsewhere."""
    if facts.in_elements is None:
        return None
    width = DTYPE_BYTES.get((facts.dtype or "").lower())
    return None if width is None else max(facts.in_elements, facts.out_elements or 0) * width
