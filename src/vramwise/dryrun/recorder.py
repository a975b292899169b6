"""A recorder of `measure` whose marks cut a log of fake allocations, and the log's replay through the allocator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vramwise.dryrun.events import EMPTY, FREE, MARK, NOTE, OWN, OWNED, TAKE, Life, Log
from vramwise.dryrun.tracer import Watcher
from vramwise.measure.recorder import Record, local
from vramwise.models.allocator import Block, CachingAllocator, NoRoomError

REMAINDERS = "unsplit remainders"


@dataclass(slots=True)
class Span:
    """From one mark to the next: bytes at its start, end and peak, and what lived at its start and peak."""

    label: str
    start: int
    end: int = 0
    peak: int = 0
    reserved: int = 0
    at_start: tuple[Life, ...] = ()
    at_peak: tuple[Life, ...] = ()
    blocks_at_peak: int = 0


@dataclass(slots=True)
class Replay:
    """What the allocator did with a log. `stuck`: label and bytes of the segment for which the room was too small."""

    spans: list[Span] = field(default_factory=list)
    notes: list[tuple[str, int]] = field(default_factory=list)
    owned: dict[str, int] = field(default_factory=dict)
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0
    stuck: tuple[str, int, int] | None = None


def replayed(log: Log, capacity: int | None = None, *, expandable: bool = False) -> Replay:
    """Play a log through the caching allocator; with `capacity` up to where it would refuse."""
    return Player(log, CachingAllocator(capacity, expandable=expandable)).play()


class Player:
    """Plays a log; `advance` goes on to its end, as far as it has come."""

    def __init__(self, log: Log, allocator: CachingAllocator) -> None:
        self.log, self.allocator = log, allocator
        self.blocks: dict[int, Block] = {}
        self.alive: dict[int, Life] = {}
        self.found = Replay()
        self.span: Span | None = None
        self.watched: set[int] = set()
        self.is_complete = True
        self.position = 0

    def advance(self) -> None:
        """Play what the log has by now. Raises NoRoomError at an allocation that does not fit, and stays there."""
        events = self.log.events
        while self.position < len(events):
            self._event(*events[self.position])
            self.position += 1

    def play(self) -> Replay:
        try:
            self.advance()
        except NoRoomError as full:
            label = self.span.label if self.span is not None else ""
            self.found.stuck = label, full.wanted, self.allocator.reserved
        self._close()
        found, allocator = self.found, self.allocator
        found.allocated, found.reserved = allocator.allocated, allocator.reserved
        found.peak_allocated, found.peak_reserved = allocator.peak_allocated, allocator.peak_reserved
        return found

    def _event(self, kind: str, what: Any) -> None:
        if kind == TAKE:
            life = self.log.lives[what]
            self.blocks[what] = self.allocator.take(life.size, life.stream)
            self.alive[what] = life
            span = self.span
            if span is not None:
                if self.allocator.allocated > span.peak:
                    span.peak, self.is_complete = self.allocator.allocated, False
                span.reserved = max(span.reserved, self.allocator.reserved)
        elif kind == FREE:
            if not self.is_complete and self.span is not None and self.allocator.allocated == self.span.peak:
                self.span.at_peak, self.is_complete = tuple(self.alive.values()), True
            self.allocator.free(self.blocks.pop(what))
            del self.alive[what]
        elif kind == MARK:
            self._close()
            held, lives = self.allocator.allocated, tuple(self.alive.values())
            self.span = Span(what, held, held, held, self.allocator.reserved, lives, lives)
            self.is_complete = True
        elif kind == NOTE:
            self.found.notes.append((what, self.allocator.allocated))
        elif kind == EMPTY:
            self.allocator.empty_cache()
            if self.span is not None and "load" in self.span.label:
                self.allocator.peak_reserved = self.allocator.reserved
        elif kind == OWN:
            self.watched = set(self.alive)
        elif kind == OWNED:
            mine = [life for number, life in self.alive.items() if number not in self.watched]
            for life in mine:
                life.name = life.name or what
            self.found.owned[what] = self.found.owned.get(what, 0) + sum(life.size for life in mine)

    def _close(self) -> None:
        span = self.span
        if span is None:
            return
        if not self.is_complete:
            span.at_peak, self.is_complete = tuple(self.alive.values()), True
        span.end = self.allocator.allocated
        self.found.spans.append(span)
        self.span = None


class FakeRecorder:
    """Recorder over a watcher; records are made by a replay once the run is over."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.replay: Replay | None = None

    def start(self) -> None: ...

    def mark(self, label: str) -> None:
        self.watcher.mark(label)

    def note(self, label: str) -> None:
        self.watcher.note(label)

    def capture(self, name: str, tensors: Sequence[Any]) -> None:
        self.watcher.name(name, [local(tensor) for tensor in tensors])

    @contextmanager
    def owning(self, name: str) -> Iterator[None]:
        self.watcher.log.say(OWN, name)
        yield
        self.watcher.log.say(OWNED, name)

    def finish(self) -> None:
        self.watcher.mark("")
        self.replay = replayed(self.watcher.log)

    @property
    def notes(self) -> list[tuple[str, int]]:
        return self.replay.notes if self.replay else []

    @property
    def owned(self) -> dict[str, int]:
        return self.replay.owned if self.replay else {}

    @property
    def records(self) -> list[Record]:
        """Spans as `measure` has them: bytes by category."""
        spans = self.replay.spans if self.replay else []
        return [
            Record(s.label, s.start, s.end, s.peak, s.reserved, shares(s.at_start, s.start), shares(s.at_peak, s.peak))
            for s in spans
            if s.label
        ]


def shares(lives: Sequence[Life], total: int) -> Mapping[str, int]:
    """Bytes by category, rounded as the allocator rounds, with what blocks hold beyond that."""
    from vramwise.dryrun.categories import category

    found: dict[str, int] = {}
    for life in lives:
        name = category(life)
        found[name] = found.get(name, 0) + -(-life.size // 512) * 512
    rest = total - sum(found.values())
    if rest:
        found[REMAINDERS] = rest
    return found
