"""A recorded step on the caching allocator at one micro-batch and length: `models/allocator.py` in one loop.

`CachingAllocator` is asked for one block at a time; a search for the longest sequence asks for millions. Here the same
rules stand once more, without a call for each block: free blocks are whole numbers (size, then number) in order, and a
block's neighbour at the end of its segment is `_EDGE`, which is never free. `tests/training/test_traces.py` holds both
against each other.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from vramwise.models.allocator import ROUNDING, SMALL_SIZE, NoRoomError, segment_bytes
from vramwise.models.autograd.size import Axes, evaluate
from vramwise.training.reserved_memory.traces import EMPTIED, FREED, FREED_LATER, JOINED, Part, Recorder

_NUMBERS = 40  # bits of a key that are a block's number; its size stands above them

Keys = list[int]


class _Block:
    """A piece of a segment; `key`: its place among free blocks, 0 while it is in use."""

    __slots__ = ("after", "before", "key", "keys", "number", "size")

    before: _Block
    after: _Block
    key: int
    keys: Keys
    number: int
    size: int


_EDGE = _Block()
_EDGE.key = _EDGE.number = 0

Taken = tuple[int, int, Keys, int]
"""Bytes of a block, the least key that is large enough, its pool, and the least rest that is split off."""


class Player:
    """Plays what a recorder took down, part by part; counters are those of `CachingAllocator`."""

    def __init__(self, recorder: Recorder, axes: Axes, capacity: int | None) -> None:
        self.recorder, self.axes, self.capacity = recorder, axes, capacity
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.was_full = False
        self.pools: dict[tuple[int, bool], Keys] = {}
        self.taken: list[Taken] = []
        self.held: list[_Block] = []
        self.free: dict[int, _Block] = {}
        self.made = 0
        self.waiting: dict[int, None] = {}  # slots whose blocks another stream still uses, the oldest first

    def state(self) -> tuple[object, ...]:
        """All that what comes next hangs on: a block starts where it always did, so that numbers say where."""
        pools = [list(keys) for keys in self.pools.values()]
        return self.reserved, pools, [block.number for block in self.held], list(self.waiting)

    def play(self, part: Part) -> None:
        """Go through a part. Raises NoRoomError when the card is full."""
        self._prepare()
        taken, held, free, made = self.taken, self.held, self.free, self.made
        allocated, peak, unused = self.allocated, self.peak_allocated, list[_Block]()
        for order, slot in zip(part.orders, part.slots, strict=True):
            if order >= 0:
                size, least, keys, least_rest = taken[order]
                place = bisect_left(keys, least)
                if place < len(keys):
                    block = free.pop(keys.pop(place))
                else:
                    self.allocated, self.peak_allocated = allocated, peak
                    made += 1
                    block = self._segment(size, made, keys)
                rest = block.size - size
                if rest >= least_rest:
                    made += 1
                    piece = unused.pop() if unused else _Block()
                    piece.before, piece.after = block, block.after
                    piece.number, piece.size, piece.keys = made, rest, keys
                    piece.key = key = rest << _NUMBERS | made
                    block.after.before = piece
                    block.after, block.size = piece, size
                    insort(keys, key)
                    free[key] = piece
                    allocated += size
                else:
                    allocated += block.size
                block.key = 0
                if allocated > peak:
                    peak = allocated
                held[slot] = block
                continue
            block = held[slot]
            if order == FREED:
                allocated -= block.size
            elif order == JOINED:
                if slot not in self.waiting:  # the card was full in between
                    continue
                del self.waiting[slot]
            elif order == FREED_LATER:
                allocated -= block.size
                self.waiting[slot] = None
                continue
            elif order == EMPTIED:
                self._empty_cache()
                continue
            else:
                peak = allocated
                continue
            held[slot] = _EDGE
            size, keys, before, after = block.size, block.keys, block.before, block.after
            if before.key:
                key = before.key
                del keys[bisect_left(keys, key)], free[key]
                size += before.size
                before.after, after.before = after, before
                unused.append(block)
                block = before
            if after.key:
                key = after.key
                del keys[bisect_left(keys, key)], free[key]
                size += after.size
                unused.append(after)
                block.after = after = after.after
                after.before = block
            block.size = size
            block.key = key = size << _NUMBERS | block.number
            insort(keys, key)
            free[key] = block
        self.allocated, self.peak_allocated, self.made = allocated, peak, made

    def _prepare(self) -> None:
        """Sizes and slots of what was recorded since the last part."""
        new = list(self.recorder.sizes)[len(self.taken) :]
        self.taken += [self._taken(int(evaluate(size, self.axes)), stream) for size, stream in new]
        self.held += [_EDGE] * (self.recorder.num_slots + 1 - len(self.held))  # where nothing is taken there is one too

    def _taken(self, size: int, stream: int) -> Taken:
        size = -(-size // ROUNDING) * ROUNDING or ROUNDING
        is_small = size <= SMALL_SIZE
        keys = self.pools.setdefault((stream, is_small), [])
        return size, size << _NUMBERS, keys, ROUNDING if is_small else SMALL_SIZE + 1

    def _segment(self, size: int, number: int, keys: Keys) -> _Block:
        """A new segment for a block of `size` bytes, as one block."""
        block = _Block()
        block.before = block.after = _EDGE
        block.size, block.number, block.keys = segment_bytes(size), number, keys
        if self.capacity is not None and self.reserved + block.size > self.capacity:
            self.was_full = True
            self._empty_cache()
            if self.reserved + block.size > self.capacity:
                raise NoRoomError(block.size)
        self.reserved += block.size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return block

    def _empty_cache(self) -> None:
        """Give back every segment that is free as a whole, after what other streams still use."""
        for slot in self.waiting:
            self._join(self.held[slot])
            self.held[slot] = _EDGE
        self.waiting.clear()
        for keys in self.pools.values():
            left = []
            for key in keys:
                block = self.free[key]
                if block.before is _EDGE and block.after is _EDGE:
                    self.reserved -= block.size
                    del self.free[key]
                else:
                    left.append(key)
            keys[:] = left

    def _join(self, block: _Block) -> None:
        """A block comes back to its pool, with its free neighbours."""
        keys = block.keys
        for other in (block.before, block.after):
            if other.key:
                del keys[bisect_left(keys, other.key)], self.free[other.key]
        if block.before.key:
            block.before.size += block.size
            block.before.after, block.after.before = block.after, block.before
            block = block.before
        if block.after.key:
            block.size += block.after.size
            block.after = block.after.after
            block.after.before = block
        block.key = block.size << _NUMBERS | block.number
        insort(keys, block.key)
        self.free[block.key] = block
