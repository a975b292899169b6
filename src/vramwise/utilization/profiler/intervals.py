"""Unions and intersections of time intervals, as sorted columns of starts and ends that do not touch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers

    Spans = tuple[Integers, Integers]


def union(start: Integers, end: Integers) -> Spans:
    """The intervals that cover the same time without overlapping; intervals that touch are joined.

    With starts and ends each in order, a gap lies before a start behind as many ends as there were starts: no interval
    is carried along with another.
    """
    from vramwise.utilization.profiler.columns import np

    if not len(start):
        return start, end
    if (end < start).any():
        return _of_some_negative(start, end)
    if (in_one_go := getattr(start, "union_until", None)) is not None:
        spans: Spans = in_one_go(end)
        return spans
    start, end = _in_order(start), _in_order(end)
    first = np.ones(len(start), dtype=bool)
    first[1:] = start[1:] > end[:-1]
    return start[first], end[np.append(first[1:], True)]


def _in_order(times: Integers) -> Integers:
    """Most are, and a copy of a large trace's times is large."""
    from vramwise.utilization.profiler.columns import np

    return np.sort(times) if (times[1:] < times[:-1]).any() else times


def _of_some_negative(start: Integers, end: Integers) -> Spans:
    """The union where some intervals end before they start, as those do that HTA rounds: each in its place."""
    from vramwise.utilization.profiler.columns import np

    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
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

    some = [spans for spans in unions if len(spans[0])]
    if len(some) < 2:
        return (some or unions)[0]
    return union(np.concatenate([starts for starts, _ in some]), np.concatenate([ends for _, ends in some]))


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
