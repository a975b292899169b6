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

_NUMBERS = 28  # bits of a key that are a block's number; its size stands above them
_NUMBER = (1 << _NUMBERS) - 1
_SMALL = SMALL_SIZE // ROUNDING

Keys = list[int]


class _Block:
    """A piece of a segment; `size`: in units of what the allocator rounds to, so that most are numbers of one digit to
    Python; `key`: its place among free blocks, 0 while it is in use."""

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
"""Units of a block, the least key that is large enough, its pool, and the least rest that is split off."""


class Player:
    """Plays what a recorder took down, part by part; counters are those of `CachingAllocator`."""

    def __init__(
        self, recorder: Recorder, axes: Axes, capacity: int | None, of_evaluations: Axes | None = None
    ) -> None:  # fmt: skip
        self.recorder, self.capacity = recorder, capacity
        self.axes = axes, of_evaluations or axes
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self.was_full = False
        self.pools: dict[tuple[int, bool], Keys] = {}
        self.taken: list[Taken] = []
        self.held: list[_Block] = []
        self.blocks = [_EDGE]  # by their numbers
        self.waiting: dict[int, None] = {}  # slots whose blocks another stream still uses, the oldest first

    def state(self) -> tuple[object, ...]:
        """All that what comes next hangs on: a block starts where it always did, so that numbers say where."""
        pools = [list(keys) for keys in self.pools.values()]
        return self.reserved, pools, [block.number for block in self.held], list(self.waiting)

    def play(self, part: Part) -> None:
        """Go through a part. Raises NoRoomError when the card is full.

        A key that changes stays in its place among the others where these let it, which is most of the time.
        """
        self._prepare()
        taken, held, blocks = self.taken, self.held, self.blocks
        allocated, peak, unused = self.allocated // ROUNDING, self.peak_allocated // ROUNDING, list[_Block]()
        for order, slot in zip(part.orders, part.slots, strict=True):
            if order >= 0:
                size, least, keys, least_rest = taken[order]
                place = bisect_left(keys, least)
                if place < len(keys):
                    block = blocks[keys[place] & _NUMBER]
                else:
                    self.allocated, self.peak_allocated = allocated * ROUNDING, peak * ROUNDING
                    block = self._segment(size, keys)
                    place = bisect_left(keys, block.key)
                rest = block.size - size
                if rest >= least_rest:
                    piece = unused.pop() if unused else _Block()
                    piece.before, piece.after = block, block.after
                    piece.number = number = len(blocks)
                    piece.size, piece.keys = rest, keys
                    piece.key = key = rest << _NUMBERS | number
                    block.after.before = piece
                    block.after, block.size = piece, size
                    blocks.append(piece)
                    if not place or keys[place - 1] < key:
                        keys[place] = key
                    else:
                        del keys[place]
                        insort(keys, key, 0, place)
                    allocated += size
                else:
                    del keys[place]
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
            joined = 0
            if before.key:
                joined = before.key
                size += before.size
                before.after, after.before = after, before
                unused.append(block)
                block = before
            if after.key:
                if joined:
                    del keys[bisect_left(keys, joined)]
                joined = after.key
                size += after.size
                unused.append(after)
                block.after = after = after.after
                after.before = block
            block.size = size
            block.key = key = size << _NUMBERS | block.number
            if joined:
                place = bisect_left(keys, joined)
                if place + 1 == len(keys) or key < keys[place + 1]:
                    keys[place] = key
                else:
                    del keys[place]
                    insort(keys, key, place)
            else:
                insort(keys, key)
        self.allocated, self.peak_allocated = allocated * ROUNDING, peak * ROUNDING

    def _prepare(self) -> None:
        """Sizes and slots of what was recorded since the last part."""
        new = list(self.recorder.sizes)[len(self.taken) :]
        self.taken += [self._taken(int(evaluate(size, self.axes[rows])), stream) for size, stream, rows in new]
        self.held += [_EDGE] * (self.recorder.num_slots + 1 - len(self.held))  # where nothing is taken there is one too

    def _taken(self, size: int, stream: int) -> Taken:
        units = -(-size // ROUNDING) or 1
        is_small = units <= _SMALL
        keys = self.pools.setdefault((stream, is_small), [])
        return units, units << _NUMBERS, keys, 1 if is_small else _SMALL + 1

    def _segment(self, units: int, keys: Keys) -> _Block:
        """A new segment for a block of so many units, as one free block."""
        size = segment_bytes(units * ROUNDING)
        if self.capacity is not None and self.reserved + size > self.capacity:
            self.was_full = True
            self._empty_cache()
            if self.reserved + size > self.capacity:
                raise NoRoomError(size)
        block = _Block()
        block.before = block.after = _EDGE
        block.size, block.number, block.keys = size // ROUNDING, len(self.blocks), keys
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self.blocks.append(block)
        self._put(block)
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
                block = self.blocks[key & _NUMBER]
                if block.before is _EDGE and block.after is _EDGE:
                    self.reserved -= block.size * ROUNDING
                else:
                    left.append(key)
            keys[:] = left

    def _join(self, block: _Block) -> None:
        """A block comes back to its pool, with its free neighbours."""
        keys = block.keys
        for other in (block.before, block.after):
            if other.key:
                del keys[bisect_left(keys, other.key)]
        if block.before.key:
            block.before.size += block.size
            block.before.after, block.after.before = block.after, block.before
            block = block.before
        if block.after.key:
            block.size += block.after.size
            block.after = block.after.after
            block.after.before = block
        self._put(block)

    def _put(self, block: _Block) -> None:
        """Among the free blocks of its pool."""
        block.key = block.size << _NUMBERS | block.number
        insort(block.keys, block.key)
