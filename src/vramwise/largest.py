"""The largest size whose need stays within a room, in a handful of evaluations: batches and lengths of every task."""

from __future__ import annotations

from collections.abc import Callable


def largest_within(need: Callable[[int], int], room: int, most: int, known: tuple[int, int] | None = None) -> int:
    """The largest n from 1 to `most` with need(n) ≤ room; 0 when even need(1) is above it, or `most` is below 1.

    `known` is a size up to `most` with its need, where that was worked out already.

    The answer fits and the next size does not, whatever `need` does; it is the only such size where `need` does not
    fall. It is a maximum of functions that are nearly linear in n (bytes in the batch), so the line
    through the two ends of the bracket meets the room close to the answer; halving takes over when a line gains little.
    """
    if most < 1:
        return 0
    if known is not None and known[1] <= room:
        low, at_low = known
    else:
        low, at_low = 1, need(1)
        if at_low > room:
            return 0
    high, at_high = known if known is not None and known[1] > room else _above(need, room, low, at_low, most)
    if at_high <= room:
        return high
    halve = False
    while high - low > 1:
        width = high - low
        line = low + (room - at_low) * width // (at_high - at_low)
        middle = (low + high) // 2 if halve else min(max(line, low + 1), high - 1)
        needed = need(middle)
        if needed <= room:
            low, at_low = middle, needed
            # On a convex need the line stops short, by nothing where one linear piece holds the answer.
            if high - low > 1 and not halve:
                next_needed = need(low + 1)
                if next_needed > room:
                    return low
                low, at_low = low + 1, next_needed
        else:
            high, at_high = middle, needed
        halve = 2 * (high - low) > width
    return low


def _above(need: Callable[[int], int], room: int, low: int, at_low: int, most: int) -> tuple[int, int]:
    """A size above `low` whose need exceeds the room, with that need; `most` when none does."""
    before, at_before = low, at_low
    size = min(2 * low, most)
    while size > before:
        needed = need(size)
        if needed > room or size == most:
            return size, needed
        slope = max(1, (needed - at_before) // (size - before))
        before, at_before = size, needed
        along_the_line = size + 1 + (room - needed) // slope
        size = min(most, along_the_line if size == 2 * low else max(along_the_line, 2 * size))
    return before, at_before
