"""Blocks of the allocator that several holders share, as Python's and autograd's references do."""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.models.allocator import Block, CachingAllocator
from vramwise.records import record


@record(eq=False, frozen=False)
class Held:
    """An allocated block and how many refer to it."""

    block: Block
    holders: int = 1


class Memory(CachingAllocator):
    """The allocator, with blocks that are freed when nobody holds them any more."""

    def hold(self, size: int, stream: int = 0) -> Held:
        return Held(self.take(size, stream))

    def some(self, *sizes: int, stream: int = 0) -> list[Held]:
        """A block for each size that is not nothing."""
        return [Held(self.take(size, stream)) for size in sizes if size]

    def drop(self, held: Held) -> None:
        assert held.holders > 0, "nobody lets go of a block twice"
        held.holders -= 1
        if held.holders == 0:
            self.free(held.block)

    def drop_all(self, held: Iterable[Held]) -> None:
        for one in held:
            self.drop(one)

    def drop_later(self, held: Iterable[Held]) -> None:
        """Let go of blocks of one holder that another stream still uses."""
        for one in held:
            assert one.holders == 1, "nobody lets go of a block twice"
            one.holders = 0
            self.free_later(one.block)
