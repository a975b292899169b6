"""A log as the snapshot that `torch.cuda.memory._dump_snapshot` would write, for PyTorch's memory viewer.

The layout is that of torch/csrc/cuda/memory_snapshot.cpp (2.13): `segments` with their blocks, `device_traces` with one
list of events a device. Addresses are those of a card that hands out segments one behind the other.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Final

from vramwise.dryrun.events import EMPTY, FREE, MARK, TAKE, Frame, Life, Log
from vramwise.models.allocator import ROUNDING, SMALL_SEGMENT, Block, CachingAllocator
from vramwise.units import round_up

_FIRST_ADDRESS: Final = 0x7F0000000000
Event = dict[str, Any]


def write_snapshot(path: Path, log: Log) -> None:
    """Write the snapshot of a log; the file is there whole or not at all."""
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as out:
        pickle.dump(snapshot_of(log), out, protocol=4)
    part.replace(path)


def snapshot_of(log: Log) -> dict[str, object]:
    """The snapshot as plain data."""
    return _Drawer(log).draw()


class _Drawer:
    """Plays a log and notes where each block lies."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.allocator = CachingAllocator()
        self.heads: dict[int, tuple[Block, int, int, int]] = {}
        self.next_address = _FIRST_ADDRESS
        self.lives: dict[int, tuple[Life, int, Block]] = {}
        self.events: list[Event] = []
        self.frames: dict[tuple[Frame, ...], list[dict[str, Any]]] = {}
        self.lines: dict[Frame, dict[str, Any]] = {}
        self.moment = ""

    def draw(self) -> dict[str, Any]:
        for kind, what in self.log.events:
            if kind == TAKE:
                self._take(self.log.lives[what])
            elif kind == FREE:
                self._free(what)
            elif kind == EMPTY:
                self._empty()
            elif kind == MARK:
                self.moment = str(what)
        return {
            "segments": [self._segment(*entry) for entry in self.heads.values()],
            "device_traces": [self.events],
            "allocator_settings": {"expandable_segments": False},
            "external_annotations": [],
        }

    def _take(self, life: Life) -> None:
        before = self.allocator.reserved
        block = self.allocator.take(life.size, life.stream)
        made = self.allocator.reserved - before
        frames = self._frames_of(life)
        if made:
            head = _head(block)
            self.heads[id(head)] = head, self.next_address, made, life.stream
            self._event("segment_alloc", self.next_address, made, life.stream, frames)
            self.next_address += round_up(made, SMALL_SEGMENT)
        address = self._address(block)
        self.lives[life.number] = life, address, block
        self._event("alloc", address, life.size, life.stream, frames)

    def _free(self, number: int) -> None:
        life, address, block = self.lives.pop(number)
        self.allocator.free(block)
        for action in ("free_requested", "free_completed"):
            self._event(action, address, life.size, life.stream, [])

    def _empty(self) -> None:
        free = [key for key, (head, *_) in self.heads.items() if not head.used and head.after is None]
        self.allocator.empty_cache()
        for key in free:
            _, address, size, stream = self.heads.pop(key)
            self._event("segment_free", address, size, stream, [])

    def _address(self, block: Block) -> int:
        offset, at = 0, block
        while at.before is not None:
            at = at.before
            offset += at.size
        return self.heads[id(at)][1] + offset

    def _event(self, action: str, address: int, size: int, stream: int, frames: list[dict[str, object]]) -> None:
        self.events.append(
            {
                "action": action, "addr": address, "size": size, "stream": stream, "time_us": len(self.events),
                "compile_context": "N/A", "user_metadata": self.moment, "frames": frames,
            }
        )  # fmt: skip

    def _frames_of(self, life: Life) -> list[dict[str, object]]:
        lines = ((life.module or "module", 0, life.operation), *life.stack)
        if lines not in self.frames:
            self.frames[lines] = [self._line(frame) for frame in lines]
        return self.frames[lines]

    def _line(self, frame: Frame) -> dict[str, object]:
        if frame not in self.lines:
            self.lines[frame] = {"filename": frame[0], "line": frame[1], "name": frame[2]}
        return self.lines[frame]

    def _segment(self, head: Block, address: int, size: int, stream: int) -> dict[str, object]:
        held = {id(block): life for life, _, block in self.lives.values()}
        blocks, at, where, asked, active = [], address, head, 0, 0
        block: Block | None = where
        while block is not None:
            life = held.get(id(block))
            requested = life.size if life is not None else 0
            state = "active_allocated" if life is not None else "inactive"
            frames = self._frames_of(life) if life is not None else []
            blocks.append({"address": at, "size": block.size, "requested_size": requested, "state": state,
                           "user_metadata": "", "frames": frames})  # fmt: skip
            asked += requested
            active += block.size if life is not None else 0
            at += block.size
            block = block.after
        return {
            "device": 0, "address": address, "total_size": size, "allocated_size": active, "active_size": active,
            "requested_size": asked, "stream": stream, "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "segment_type": "small" if size == SMALL_SEGMENT and head.size <= size // 2 + ROUNDING else "large",
            "blocks": blocks,
        }  # fmt: skip


def _head(block: Block) -> Block:
    while block.before is not None:
        block = block.before
    return block
