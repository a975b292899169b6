"""The caching allocator's rules, and that nothing gets lost in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise.models.allocator import Block, CachingAllocator, NoRoomError
from vramwise.units import MIB


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB is not worth splitting off
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    ],
)
def test_a_first_block(size: int, allocated: int, reserved: int) -> None:
    memory = CachingAllocator()
    memory.take(size)
    assert (memory.allocated, memory.reserved) == (allocated, reserved)


def test_the_smallest_block_that_is_large_enough_is_split_and_joined_again() -> None:
    memory = CachingAllocator()
    large, small = memory.take(100 * MIB), memory.take(40 * MIB)
    memory.free(large)
    memory.free(small)
    part = memory.take(30 * MIB)  # of the 40
    rest = memory.take(10 * MIB)
    assert memory.reserved == 140 * MIB
    memory.take(100 * MIB)
    assert memory.reserved == 140 * MIB
    memory.free(part)
    memory.free(rest)
    memory.take(40 * MIB)
    assert memory.reserved == memory.allocated == memory.peak_allocated == 140 * MIB


def test_emptying_the_cache_leaves_segments_that_are_in_use_in_part() -> None:
    allocator = CachingAllocator()
    held, freed = allocator.take(2 * MIB), allocator.take(2 * MIB)
    alone = allocator.take(30 * MIB)
    allocator.free(freed)
    allocator.free(alone)
    allocator.empty_cache()
    assert (allocator.allocated, allocator.reserved) == (2 * MIB, 20 * MIB)
    allocator.free(held)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_small_blocks_do_not_serve_large_ones() -> None:
    memory = CachingAllocator()
    memory.free(memory.take(2 * MIB))  # 20 MiB are free
    memory.take(MIB)
    assert memory.reserved == 22 * MIB


def test_a_full_card_gives_whole_free_segments_back_first() -> None:
    memory = CachingAllocator(capacity=100 * MIB)
    whole, kept = memory.take(40 * MIB), memory.take(20 * MIB)
    memory.free(whole)
    memory.take(60 * MIB)
    assert (memory.reserved, memory.peak_reserved) == (80 * MIB, 80 * MIB)
    memory.free(kept)
    memory.take(4 * MIB)  # breaks the segment of 20 MiB up
    with pytest.raises(NoRoomError) as full:
        memory.take(30 * MIB)
    assert full.value.wanted == 30 * MIB
    assert memory.reserved == 80 * MIB


SIZES = st.one_of(st.integers(1, 3 * MIB), st.integers(1, 60).map(lambda n: n * MIB))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, st.integers(0, 1000)), min_size=1, max_size=60))
def test_what_is_reserved_is_in_use_or_free(steps: list[tuple[int, int]]) -> None:
    memory = CachingAllocator()
    held: list[Block] = []
    for size, choice in steps:
        held.append(memory.take(size))
        if choice % 3 == 0:
            memory.free(held.pop(choice % len(held)))
        assert memory.allocated == sum(block.size for block in held)
    for block in held:
        memory.free(block)
    assert memory.allocated == 0
    again = memory.reserved
    for size, _ in steps:  # every segment is whole again, so that the same blocks need no more
        memory.take(size)
    assert memory.reserved >= again
    assert memory.peak_allocated <= memory.reserved


def test_a_stream_cannot_use_what_another_left() -> None:
    memory = CachingAllocator()
    memory.free(memory.take(20 * MIB))
    memory.take(20 * MIB, stream=1)
    assert (memory.allocated, memory.reserved) == (20 * MIB, 40 * MIB)


def test_a_block_that_another_stream_uses_comes_back_later() -> None:
    memory = CachingAllocator()
    memory.free_later(memory.take(20 * MIB))
    mark = memory.mark
    memory.free_later(memory.take(20 * MIB))
    assert (memory.allocated, memory.reserved) == (0, 40 * MIB)
    memory.settle(mark)
    memory.take(20 * MIB)
    memory.take(20 * MIB)
    assert memory.reserved == 60 * MIB


def test_an_expandable_segment_that_was_given_back_is_made_anew() -> None:
    memory = CachingAllocator(expandable=True)
    memory.free(memory.take(5 * MIB))
    memory.empty_cache()
    assert memory.reserved == 0
    memory.free(memory.take(50 * MIB))
    assert memory.reserved == memory.peak_reserved == 60 * MIB
    memory.take(60 * MIB)
    assert memory.reserved == memory.allocated == 60 * MIB


def test_an_expandable_segment_grows_from_what_is_free_at_its_end() -> None:
    memory = CachingAllocator(expandable=True)
    first, second = memory.take(30 * MIB), memory.take(10 * MIB)
    assert memory.reserved == 40 * MIB
    memory.free(second)
    third = memory.take(50 * MIB)
    assert (third.before, memory.reserved) == (first, 80 * MIB)
    memory.free(first)
    memory.free(third)
    assert memory.take(70 * MIB).size == 70 * MIB
    assert memory.reserved == 80 * MIB


def test_a_card_is_full_for_growing_segments_when_pages_in_use_fill_it() -> None:
    """Free pages are given back and come again; a page on which a byte lies stays, whatever is free beside it."""
    scattered, together = (CachingAllocator(200 * MIB, expandable=True) for _ in range(2))
    for memory, freed in (scattered, slice(1, None, 2)), (together, slice(6, None)):
        blocks = [memory.take(15 * MIB) for _ in range(12)]
        for block in blocks[freed]:
            memory.free(block)
        assert (memory.allocated, memory.reserved, memory.was_full) == (90 * MIB, 180 * MIB, False)
    together.take(100 * MIB, stream=1)
    assert together.was_full
    with pytest.raises(NoRoomError):
        scattered.take(40 * MIB, stream=1)


@given(st.lists(st.tuples(st.integers(1, 60 * MIB), st.integers(0, 1), st.integers(0, 9)), max_size=60))
def test_pages_in_use_are_those_that_a_block_lies_on(steps: list[tuple[int, int, int]]) -> None:
    memory = CachingAllocator(2**60, expandable=True)
    held: list[Block] = []
    for size, stream, gone in steps:
        held.append(memory.take(size, stream))
        if gone < len(held) and gone % 2:
            memory.free(held.pop(gone))
        pages: dict[tuple[int, int], int] = {}
        for block in held:
            page = 2 * MIB if block.size <= MIB else 20 * MIB
            touched = range(block.start // page, (block.start + block.size - 1) // page + 1)
            pages |= {(id(block.pool), number): page for number in touched}
        assert memory._pages is not None
        assert memory._pages.bytes == sum(pages.values())
