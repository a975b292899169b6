"""A memory snapshot of torch's caching allocator as rows that were checked.

`torch.cuda.memory._dump_snapshot` writes a table with `segments` (what the allocator holds now, in blocks) and
`device_traces` (what happened lately, one list a device); `torch.cuda.memory_snapshot()` gives the segments alone.
Format: torch/cuda/memory.py and torch/csrc/cuda/memory_snapshot.cpp, 1.13 to 2.13. Sizes are bytes; a block's `size`
is what it takes, its `requested_size` what the program asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from vramwise.errors import SourceError
from vramwise.measure.plain_pickle import plain_from_pickle

MOST_ROWS: Final = 20_000_000
"""Rows that are looked at; a hostile file can hold one list a million times without being large."""

ACTIVE: Final = frozenset({"active_allocated", "active_awaiting_free", "active_pending_free"})
_FRAMES_KEPT: Final = 60
_LONGEST_TEXT: Final = 500


class SnapshotError(SourceError):
    """A pickle that was read and is no memory snapshot."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the stack that asked for memory."""

    filename: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} {self.name}" if self.filename else self.name


Stack = tuple[Frame, ...]
"""Innermost first, as torch writes it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment: in use, waiting to be freed, or free."""

    address: int
    size: int
    requested: int
    state: str
    stack: Stack = ()

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory that the allocator got from the driver at once."""

    device: int
    address: int
    total_size: int
    stream: int
    blocks: tuple[Block, ...]
    expandable: bool = False
    pool: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of a device's history; `size` is what was requested."""

    action: str
    address: int
    size: int
    stream: int
    time_us: int
    stack: Stack = ()
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the allocator held and what it did."""

    segments: tuple[Segment, ...]
    histories: tuple[tuple[Event, ...], ...]
    settings: Mapping[str, object]

    @property
    def devices(self) -> list[int]:
        """Devices that hold or did something."""
        busy = {segment.device for segment in self.segments}
        return sorted(busy | {device for device, events in enumerate(self.histories) if events})

    def history(self, device: int) -> tuple[Event, ...]:
        return self.histories[device] if device < len(self.histories) else ()

    def held_by(self, device: int) -> list[Segment]:
        return [segment for segment in self.segments if segment.device == device]


def snapshot_from_pickle(data: bytes) -> Snapshot:
    """Read a snapshot's pickle. Raises PlainPickleError (nothing of it is run) or SnapshotError."""
    return snapshot_from(plain_from_pickle(data))


def snapshot_from(value: object) -> Snapshot:
    """Check plain data and make rows of it. Raises SnapshotError, which says what is not as torch writes it."""
    table = {"segments": value, "device_traces": []} if isinstance(value, list) else value
    if not isinstance(table, dict) or "segments" not in table:
        raise SnapshotError("not a memory snapshot: it has no segments (torch.cuda.memory._dump_snapshot writes them)")
    rows = _Rows()
    segments = tuple(rows.segment(item) for item in rows.items(table["segments"], "segments"))
    histories = tuple(
        tuple(rows.event(item) for item in rows.items(trace, "device_traces"))
        for trace in rows.items(table.get("device_traces", []), "device_traces")
    )
    settings = table.get("allocator_settings")
    return Snapshot(segments, histories, settings if isinstance(settings, dict) else {})


class _Rows:
    """Reads tables into rows, counting them; equal stacks are kept once."""

    def __init__(self) -> None:
        self.seen = 0
        self.stacks: dict[int, Stack] = {}
        self.kept: list[object] = []  # keeps the identities above alive

    def items(self, value: object, where: str) -> Iterator[object]:
        if not isinstance(value, list | tuple):
            raise SnapshotError(f"not a memory snapshot: {where} is no list")
        for item in value:
            self.seen += 1
            if self.seen > MOST_ROWS:
                raise SnapshotError(f"the snapshot has more than {MOST_ROWS:,} rows")
            yield item

    def segment(self, row: object) -> Segment:
        row = _table(row, "a segment")
        address = _whole(row, "address", 0)
        device = _whole(row, "device", 0)
        blocks, at = [], address
        for item in self.items(row.get("blocks", []), "a segment's blocks"):
            block = self.block(item, at)
            blocks.append(block)
            at = block.address + block.size
        pool = row.get("segment_pool_id")
        first, second = pool if isinstance(pool, list | tuple) and len(pool) == 2 else (0, 0)
        return Segment(
            device, address, _whole(row, "total_size"), _whole(row, "stream", 0), tuple(blocks),
            row.get("is_expandable") is True, (_number(first), _number(second)),
        )  # fmt: skip

    def block(self, row: object, at: int) -> Block:
        row = _table(row, "a block")
        size = _whole(row, "size")
        state = row.get("state")
        if not isinstance(state, str):
            raise SnapshotError("not a memory snapshot: a block has no state")
        requested, stack = _whole(row, "requested_size", size), self.stack(row.get("frames"))
        past = row.get("history")  # torch 1.13 and 2.0 keep stack and requested size here, newest first
        if isinstance(past, list) and past and isinstance(past[0], dict):
            requested = _whole(past[0], "real_size", requested)
            stack = stack or self.stack(past[0].get("frames"))
        return Block(_whole(row, "address", at), size, requested, state, stack)

    def event(self, row: object) -> Event:
        row = _table(row, "an entry of a device's history")
        action = row.get("action")
        if not isinstance(action, str):
            raise SnapshotError("not a memory snapshot: an entry of a device's history has no action")
        free = row.get("device_free")
        return Event(
            action, _whole(row, "addr", 0), _whole(row, "size", 0), _whole(row, "stream", 0),
            _whole(row, "time_us", 0), self.stack(row.get("frames")), free if isinstance(free, int) else None,
        )  # fmt: skip

    def stack(self, frames: object) -> Stack:
        if not isinstance(frames, list | tuple) or not frames:
            return ()
        known = self.stacks.get(id(frames))
        if known is None:
            known = tuple(_frame(frame) for frame in self.items(frames[:_FRAMES_KEPT], "a stack"))
            self.stacks[id(frames)] = known
            self.kept.append(frames)
        return known


def _frame(row: object) -> Frame:
    row = _table(row, "a frame")
    return Frame(_text(row.get("filename")), _number(row.get("line", 0)), _text(row.get("name")))


def _text(value: object) -> str:
    """Text alone: `str` of a list of lists that share their items writes out what the file holds once."""
    return value[:_LONGEST_TEXT] if isinstance(value, str) else ""


def _table(value: object, what: str) -> dict[object, object]:
    if not isinstance(value, dict):
        raise SnapshotError(f"not a memory snapshot: {what} is no table")
    return value


def _whole(row: Mapping[object, object], key: str, default: int | None = None) -> int:
    value = row.get(key, default)
    if type(value) is not int or value < 0:
        raise SnapshotError(f"not a memory snapshot: {key} is no size or address")
    return value


def _number(value: object) -> int:
    return value if type(value) is int else 0
