"""The history of a snapshot played through: what was alive when, the peak, and what made it up.

torch keeps a bounded history, so a window may begin in the middle of a run. What was alive then follows from the end:
everything that is alive at the end and was not made inside the window, and everything that the window frees without
having made it. Entries carry requested sizes; a block of an earlier entry may be larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vramwise.measure.snapshot import Event, Segment, Snapshot, Stack

UNKNOWN: Stack = ()


@dataclass(slots=True)
class Life:
    """One allocation: its bytes, the stack that made it, and its first and last index of the window."""

    size: int
    stack: Stack
    start: int
    end: int
    address: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """A device's window. `live` and `reserved` hold the bytes after each of the `events`, the base first."""

    device: int
    events: int
    lives: tuple[Life, ...]
    live: tuple[int, ...]
    reserved: tuple[int, ...]

    @property
    def peak(self) -> int:
        return max(self.live)

    @property
    def peak_at(self) -> int:
        return self.live.index(self.peak)

    @property
    def peak_reserved(self) -> int:
        return max(self.reserved)

    @property
    def base(self) -> int:
        """Bytes that were alive when the window began."""
        return self.live[0]

    def alive_at(self, index: int) -> list[Life]:
        """Allocations alive after entry `index` (0: before the first)."""
        return [life for life in self.lives if life.start <= index < life.end]


def timeline_of(snapshot: Snapshot, device: int) -> Timeline:
    """The window of one device, from the snapshot's history and from what is alive at its end."""
    events = snapshot.history(device)
    segments = snapshot.held_by(device)
    lives, live = _lives(events, segments)
    return Timeline(device, len(events), tuple(lives), tuple(live), tuple(_reserved(events, segments)))


def _lives(events: Sequence[Event], segments: Sequence[Segment]) -> tuple[list[Life], list[int]]:
    last = len(events) + 1
    open_lives: dict[int, Life] = {}
    found: list[Life] = []
    for index, event in enumerate(events, 1):
        if event.action == "alloc":
            life = Life(event.size, event.stack, index, last, event.address)
            found.append(life)
            open_lives[event.address] = life
        elif event.action == "free_completed":
            made = open_lives.pop(event.address, None)
            if made is None:  # made before the window
                found.append(Life(event.size, event.stack, 0, index, event.address))
            else:
                made.end = index
    found += [
        Life(block.requested, block.stack, 0, last, block.address)
        for segment in segments
        for block in segment.blocks
        if block.is_active and block.address not in open_lives
    ]
    changes = [0] * (last + 1)
    for life in found:
        changes[life.start] += life.size
        changes[life.end] -= life.size
    live, total = [], 0
    for change in changes[:last]:
        total += change
        live.append(total)
    return found, live


_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _reserved(events: Sequence[Event], segments: Sequence[Segment]) -> list[int]:
    at_end = sum(segment.total_size for segment in segments)
    changes = [_RESERVES.get(event.action, 0) * event.size for event in events]
    total = at_end - sum(changes)
    found = [max(0, total)]
    for change in changes:
        total += change
        found.append(max(0, total))
    return found


@dataclass(frozen=True, slots=True)
class Group:
    """Allocations that one stack made: how many and how many bytes."""

    stack: Stack
    count: int
    size: int


def grouped(lives: Iterable[Life]) -> list[Group]:
    """Allocations by the stack that made them, largest first."""
    sizes: Counter[Stack] = Counter()
    counts: Counter[Stack] = Counter()
    for life in lives:
        sizes[life.stack] += life.size
        counts[life.stack] += 1
    return [Group(stack, counts[stack], size) for stack, size in sizes.most_common()]


@dataclass(frozen=True, slots=True)
class Held:
    """What the allocator holds at the snapshot: allocated + waiting + free in segments = reserved."""

    reserved: int
    allocated: int
    requested: int
    waiting: int
    free: int
    largest_free: int
    segments: int
    free_blocks: int

    @property
    def fragmentation(self) -> int:
        """Reserved − in use: what another segment size or stream cannot have."""
        return self.reserved - self.allocated - self.waiting


def held_by(segments: Iterable[Segment]) -> Held:
    """Sums over the blocks of segments; of neighbours that are both free the sizes stand apart, as torch has them."""
    found = list(segments)
    blocks = [block for segment in found for block in segment.blocks]
    allocated = [block for block in blocks if block.state == "active_allocated"]
    waiting = [block for block in blocks if block.is_active and block.state != "active_allocated"]
    free = [block.size for block in blocks if not block.is_active]
    return Held(
        reserved=sum(segment.total_size for segment in found),
        allocated=sum(block.size for block in allocated),
        requested=sum(block.requested for block in allocated),
        waiting=sum(block.size for block in waiting),
        free=sum(free),
        largest_free=max(free, default=0),
        segments=len(found),
        free_blocks=len(free),
    )
