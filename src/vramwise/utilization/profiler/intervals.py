"""Unions and intersections of time intervals, as sorted columns of starts and ends that do not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers

    Spans = tuple[Integers, Integers]


def union(start: Integers, end: Integers) -> Spans:
    """The intervals that cover the same time without overlapping; intervals that touch are joined."""
    from vramwise.utilization.profiler.columns import np

    if not len(start):
        return start, end
    if (start[1:] < start[:-1]).any():  # most are in the order of time, and a copy of a large trace's times is large
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        del order
    if (in_one_pass := getattr(start, "union_until", None)) is not None:
        spans: Spans = in_one_pass(end)
        return spans
    end = np.maximum.accumulate(end)
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > end[:-1]
    return start[first], end[np.append(first[1:], True)]


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
