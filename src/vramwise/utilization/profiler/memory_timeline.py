"""The allocator's `[memory]` events of one device as a timeline of bounded size, however many events there are."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    Bytes = list[int]

    from vramwise.utilization.profiler.columns import Integers

MOST_BINS = 512
FIRST_BIN_NS = 1000
PENDING_EVENTS = 32_768
"""Events that wait until they are folded into bins, 32 bytes each."""


class Totals(NamedTuple):
    """Bytes in the order of the file, and when the most were held."""

    first: int
    peak: int
    peak_time: int
    last: int


class MemoryTimeline(NamedTuple):
    """What one device's allocator held, by bins of `bin_ns` nanoseconds; a bin without events is absent.

    `relative`: the trace states changes alone, as those of 2021 do, so totals count from its first event. `start` is
    each bin's; `low` and `high` are the least and most allocated bytes after any event in it, `last` those after its
    last event; `reserved` the most reserved bytes, ABSENT (-1) where the trace states none.
    """

    device: str
    events: int
    relative: bool
    allocated: Totals | None
    reserved: Totals | None
    bin_ns: int
    start: Integers
    low: Integers
    high: Integers
    last: Integers
    reserved_high: Integers


class TakesMemory(Protocol):
    """Takes memory events of one device: times in ns, the changes, and what is allocated and reserved then."""

    def add(self, times: Bytes, changes: Bytes, allocated: Bytes, reserved: Bytes) -> None: ...


class MemoryFold:
    """Takes the events of one device in the file's order; holds at most MOST_BINS bins and some events.

    A bin's width doubles whenever the bins would be too many, which merges them two by two: low, high and last of two
    bins follow from those of each.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._pending = _no_events()
        self._events = 0
        self._running = 0
        self._relative: bool | None = None
        self._allocated: Totals | None = None
        self._reserved: Totals | None = None
        self._origin = 0
        self._width = FIRST_BIN_NS
        self._bins: list[Integers] | None = None

    def add(self, times: Bytes, changes: Bytes, allocated: Bytes, reserved: Bytes) -> None:
        """Some events: when (ns), and totals after each, negative where the trace states none."""
        for pending, values in zip(self._pending, (times, changes, allocated, reserved), strict=True):
            pending.fromlist(values)
        if len(self._pending[0]) >= PENDING_EVENTS:
            self._fold()

    def timeline(self) -> MemoryTimeline:
        """Everything that was added."""
        if self._pending[0]:
            self._fold()
        assert self._bins is not None  # a fold is made for its first event
        index, low, high, last, reserved = self._bins
        start = index * self._width + self._origin
        relative = bool(self._relative)
        return MemoryTimeline(self._device, self._events, relative, self._allocated, self._reserved, self._width,
                              start, low, high, last, reserved)  # fmt: skip

    def _fold(self) -> None:
        from vramwise.utilization.profiler.columns import np

        time, change, allocated, reserved = (np.asarray(cells) for cells in self._pending)
        self._pending = _no_events()
        self._events += len(time)
        if self._relative is None:
            self._relative, self._origin = not (allocated >= 0).any(), int(time[0])
        if self._relative:
            allocated = self._running + np.cumsum(change)
            self._running = int(allocated[-1])
        else:
            stated = allocated >= 0
            time, allocated, reserved = time[stated], allocated[stated], reserved[stated]
        self._allocated = _totals(self._allocated, time, allocated)
        self._reserved = _totals(self._reserved, time[reserved >= 0], reserved[reserved >= 0])
        index = (time - self._origin) // self._width
        self._merge([index, allocated, allocated, allocated, reserved])

    def _merge(self, new: list[Integers]) -> None:
        """Bins and events of the same bin become one; the later ones' last counts."""
        from vramwise.utilization.profiler.columns import np

        columns = new if self._bins is None else [np.concatenate(both) for both in zip(self._bins, new, strict=True)]
        if not len(columns[0]):
            self._bins = columns
            return
        while int(columns[0].max()) - int(columns[0].min()) >= MOST_BINS:
            columns[0] = columns[0] >> 1
            self._width *= 2
        order = np.argsort(columns[0], kind="stable")
        index, low, high, last, reserved = (column[order] for column in columns)
        begins = np.flatnonzero(np.concatenate([[True], index[1:] != index[:-1]]))
        ends = np.append(begins[1:], len(index)) - 1
        self._bins = [
            index[begins],
            np.minimum.reduceat(low, begins),
            np.maximum.reduceat(high, begins),
            last[ends],
            np.maximum.reduceat(reserved, begins),
        ]


def _no_events() -> tuple[array[int], ...]:
    return tuple(array("q") for _ in range(4))


def _totals(before: Totals | None, time: Integers, held: Integers) -> Totals | None:
    if not len(held):
        return before
    highest = int(held.argmax())
    found = Totals(int(held[0]), int(held[highest]), int(time[highest]), int(held[-1]))
    if before is None:
        return found
    peak, peak_time = max(before[1:3], found[1:3], key=lambda each: each[0])
    return Totals(before.first, peak, peak_time, found.last)
