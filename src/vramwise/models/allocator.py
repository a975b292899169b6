"""PyTorch's caching allocator: which blocks it hands out, splits, joins and keeps.

Rules of c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h (torch 2.13):

- a size goes up to whole 512 bytes; blocks up to 1 MiB come from a pool of their own
- the smallest free block that is large enough is taken; what is left of it is split off when it is 512 bytes or more in
  the small pool, more than 1 MiB in the large one; less stays part of the block and counts as allocated
- without one, a new segment: 2 MiB in the small pool, 20 MiB for less than 10 MiB, else whole 2 MiB
- a freed block joins its free neighbours in its segment
- segments are kept until one more does not fit on the card; then all that are free as a whole are given back first
- every stream has pools of its own: what one stream's tensors leave free serves no other stream
- a block that another stream used as well (`Tensor.record_stream`) counts as freed at once, but comes back to its pool
  only when the host has seen that stream get past its use

With expandable segments each pool is one segment that grows at its end, by whole pages of 2 MiB in the small pool and
20 MiB in the large one, and every rest of 512 bytes or more is split off. Where the card is full, pages on which
nothing lies are given back, of every stream, and come again where they are needed (`release_blocks`, `unmap_block`): it
is full for good when pages on which something lies fill it.

Not modelled: `max_split_size_mb`, `roundup_power2_divisions`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from itertools import chain

from vramwise.units import MIB, round_up

ROUNDING = 512
SMALL_SIZE = MIB
SMALL_SEGMENT = 2 * MIB
SHARED_SEGMENT = 20 * MIB
SEGMENT_FROM = 10 * MIB
SEGMENT_MULTIPLE = 2 * MIB


def segment_bytes(size: int) -> int:
    """Bytes of the segment that is made for a block of `size` bytes (whole 512)."""
    if size <= SMALL_SIZE:
        return SMALL_SEGMENT
    return SHARED_SEGMENT if size < SEGMENT_FROM else round_up(size, SEGMENT_MULTIPLE)


def block_bytes(size: int) -> int:
    """Bytes that `torch.cuda.memory_allocated` shows for one tensor of `size` bytes in a fresh segment."""
    size = round_up(size, ROUNDING)
    segment = segment_bytes(size)
    return segment if size >= SEGMENT_FROM and segment - size <= SMALL_SIZE else size


class NoRoomError(Exception):
    """A segment of `wanted` bytes does not fit beside those that hold something."""

    def __init__(self, wanted: int) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class Block:
    """A piece of a segment, linked to its neighbours there."""

    __slots__ = ("after", "before", "number", "pool", "size", "start", "used")

    def __init__(self, size: int, number: int, pool: FreeBlocks, start: int = 0) -> None:
        self.size, self.number, self.pool, self.start = size, number, pool, start
        self.before: Block | None = None
        self.after: Block | None = None
        self.used = False


class Pages:
    """Pages of growing segments on which something lies: `bytes` of them all."""

    def __init__(self) -> None:
        self.bytes = 0
        self._page_of: dict[int, int] = {}
        self._ends: dict[tuple[int, int], int] = {}
        """How many blocks begin or end on a page of a pool."""

    def take(self, block: Block, page: int) -> None:
        """Something lies in a block."""
        pool, first, last = self._place(block, page)
        for end in {first, last}:
            others = self._ends.get((pool, end), 0)
            self._ends[pool, end] = others + 1
            self.bytes += 0 if others else page
        self.bytes += max(0, last - first - 1) * page

    def free(self, block: Block) -> None:
        """It does no more."""
        page = self._page_of[id(block.pool)]
        pool, first, last = self._place(block, page)
        for end in {first, last}:
            left = self._ends[pool, end] - 1
            self._ends[pool, end] = left
            self.bytes -= 0 if left else page
        self.bytes -= max(0, last - first - 1) * page

    def _place(self, block: Block, page: int) -> tuple[int, int, int]:
        pool = id(block.pool)
        self._page_of[pool] = page
        return pool, block.start // page, (block.start + block.size - 1) // page


FreeBlocks = list[tuple[int, int, Block]]
"""Sizes, numbers that make them unlike, and the blocks: smallest first."""


class CachingAllocator:
    """Counts `allocated` and `reserved` bytes and their peaks while blocks are taken and freed.

    `capacity`: bytes of the card that segments may take together; None: without limit. `expandable`: whether segments
    grow. `was_full`: whether segments were given back because one more did not fit.
    """

    def __init__(self, capacity: int | None = None, *, expandable: bool = False) -> None:
        self.capacity, self.expandable = capacity, expandable
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0
        self._pools: dict[int, tuple[FreeBlocks, FreeBlocks]] = {0: ([], [])}
        self._in_use_elsewhere: deque[Block] = deque()
        self._ever_deferred = 0
        self._ends: dict[int, Block] = {}
        self._made = 0
        self.was_full = False
        self._pages = Pages() if expandable and capacity is not None else None

    def take(self, size: int, stream: int = 0) -> Block:
        """A block of at least `size` bytes from a stream's pools. Raises NoRoomError when the card is full."""
        size = -(-size // ROUNDING) * ROUNDING or ROUNDING
        is_small = size <= SMALL_SIZE
        pools = self._pools.get(stream)
        if pools is None:
            pools = self._pools[stream] = [], []
        free = pools[not is_small]
        place = bisect_left(free, (size, -1))
        if place < len(free):
            block = free.pop(place)[2]
        elif self.expandable:
            block = self._grown(size, free, is_small=is_small)
        else:
            block = self._block(segment_bytes(size), free)
            self._reserve(block.size)
        rest = block.size - size
        if rest >= ROUNDING if is_small or self.expandable else rest > SMALL_SIZE:
            self._made = number = self._made + 1
            piece, after = Block(rest, number, free, block.start + size), block.after
            piece.before, piece.after = block, after
            if after is not None:
                after.before = piece
            elif self.expandable:
                self._ends[id(free)] = piece
            block.after, block.size = piece, size
            insort(free, (rest, number, piece))
        if self._pages is not None:
            self._map(block, SMALL_SEGMENT if is_small else SHARED_SEGMENT)
        block.used = True
        self.allocated = allocated = self.allocated + block.size
        if allocated > self.peak_allocated:
            self.peak_allocated = allocated
        return block

    def free(self, block: Block) -> None:
        """Give back a block, which joins its free neighbours."""
        assert block.used, "a block is given back once"
        self.allocated -= block.size
        self._join(block)

    def free_later(self, block: Block) -> None:
        """Give back a block that another stream still uses: no longer allocated, but in no pool until `settle`."""
        assert block.used, "a block is given back once"
        self.allocated -= block.size
        self._in_use_elsewhere.append(block)
        self._ever_deferred += 1

    @property
    def mark(self) -> int:
        """How many blocks were freed later than they were let go, up to now."""
        return self._ever_deferred

    def settle(self, mark: int | None = None) -> None:
        """The other streams are past what was let go before `mark`; None: past everything."""
        left = 0 if mark is None else self._ever_deferred - mark
        while len(self._in_use_elsewhere) > left:
            self._join(self._in_use_elsewhere.popleft())

    def forget_peak(self) -> None:
        """The largest allocated bytes are counted anew (`torch.cuda.reset_peak_memory_stats`)."""
        self.peak_allocated = self.allocated

    def empty_cache(self) -> None:
        """Give back every segment that is free as a whole (`torch.cuda.empty_cache`), after what `settle` returns."""
        self.settle()
        for pool in chain.from_iterable(self._pools.values()):
            whole = [entry for entry in pool if entry[2].before is None and entry[2].after is None]
            self.reserved -= sum(entry[0] for entry in whole)
            if whole:
                self._ends.pop(id(pool), None)  # the one that grew: the next is a new one
            pool[:] = [entry for entry in pool if entry[2].before is not None or entry[2].after is not None]

    def _map(self, block: Block, page: int) -> None:
        """The pages that a growing segment needs for a block. Raises NoRoomError where pages in use fill the card."""
        assert self._pages is not None
        assert self.capacity is not None
        before = self._pages.bytes
        self._pages.take(block, page)
        if self._pages.bytes > self.capacity:
            self.settle()
        if self._pages.bytes > self.capacity:
            self.was_full, self.reserved = True, before
            raise NoRoomError(self._pages.bytes - before)

    def _join(self, block: Block) -> None:
        free = block.pool
        block.used = False
        if self._pages is not None:
            self._pages.free(block)
        before, after = block.before, block.after
        if before is not None and not before.used:
            del free[bisect_left(free, (before.size, before.number))]
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            elif self.expandable:
                self._ends[id(free)] = before
            block = before
        if after is not None and not after.used:
            del free[bisect_left(free, (after.size, after.number))]
            block.size += after.size
            block.after = after.after
            if after.after is not None:
                after.after.before = block
            elif self.expandable:
                self._ends[id(free)] = block
        insort(free, (block.size, block.number, block))

    def _grown(self, size: int, free: FreeBlocks, *, is_small: bool) -> Block:
        """A block of at least `size` bytes at the end of its pool's one segment."""
        page = SMALL_SEGMENT if is_small else SHARED_SEGMENT
        end = self._ends.get(id(free))
        if end is not None and not end.used:
            del free[bisect_left(free, (end.size, end.number))]
            more = round_up(size - end.size, page)
            end.size += more
            block = end
        else:
            more = round_up(size, page)
            block = self._block(more, free)
            block.before = end
            if end is not None:
                end.after, block.start = block, end.start + end.size
            self._ends[id(free)] = block
        self._reserve(more)
        return block

    def _reserve(self, size: int) -> None:
        if self._pages is not None and self.capacity is not None:  # pages that are free can be given back
            self.was_full = self.was_full or self.reserved + size > self.capacity
            size = min(size, self.capacity - self.reserved)
        elif self.capacity is not None and self.reserved + size > self.capacity:
            self.was_full = True
            self.empty_cache()
            if self.reserved + size > self.capacity:
                raise NoRoomError(size)
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _block(self, size: int, pool: FreeBlocks) -> Block:
        self._made += 1
        return Block(size, self._made, pool)
