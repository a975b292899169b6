"""Unions and intersections of time intervals, as sorted columns of starts and ends that do not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers

    Spans = tuple[Integers, Integers]


def union(start: Integers, end: Integers) -> Spans:
    """The intervals that cover the same time without overlapping; intervals that touch are joined."""
    from vramwise.utilization.profiler.columns import np

    order = np.argsort(start, kind="stable")
    starts, ends = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    if not len(starts):
        return starts, ends
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > ends[:-1]
    last = np.append(first[1:], True)
    return starts[first], ends[last]


def length(spans: Spans) -> int:
    """Total time of a union."""
    starts, ends = spans
    return int(ends.sum() - starts.sum())


def intersection(one: Spans, other: Spans) -> int:
    """Time that two unions share: |A| + |B| - |A or B|."""
    return length(one) + length(other) - length(joined(one, other))


def joined(*unions: Spans) -> Spans:
    """The union of unions."""
    from vramwise.utilization.profiler.columns import np

    return union(np.concatenate([starts for starts, _ in unions]), np.concatenate([ends for _, ends in unions]))


def gaps(spans: Spans) -> Spans:
    """The times between the intervals of a union."""
    starts, ends = spans
    return ends[:-1], starts[1:]


def clipped_to(spans: Spans, start: int, end: int) -> Spans:
    """What of a union lies within a window."""
    from vramwise.utilization.profiler.columns import np

    starts, ends = np.clip(spans[0], start, end), np.clip(spans[1], start, end)
    kept = ends > starts
    return starts[kept], ends[kept]
