"""A card that is full: `torch.OutOfMemoryError` where the code that runs waits for one, as a search for a batch does.

Elsewhere a script goes on beyond the card, so that the answer says all that it would take. What the allocator does
first is c10/cuda/CUDACachingAllocator.cpp's: segments that are free as a whole are given back, then it says what it
lacks.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from vramwise.dryrun.events import MARK
from vramwise.dryrun.recorder import Player
from vramwise.dryrun.values import users_line
from vramwise.measure.libraries import library
from vramwise.models.allocator import CachingAllocator, NoRoomError
from vramwise.units import counted, format_bytes

if TYPE_CHECKING:
    from vramwise.dryrun.tracer import Watcher

_NAMES: Final = frozenset({"OutOfMemoryError", "should_reduce_batch_size", "is_oom_error", "is_cuda_out_of_memory"})
"""What handlers of it name: torch's class; the questions of accelerate's and Lightning's searches for a batch."""
_WORDS: Final = "out of memory"
_AHEAD: Final = ("|between steps", "|loaded", "|load")
"""Where what a try did began: after the last step, or after loading."""


class FullCard:
    """The room of a card beside a watch. `caught`: how often it was full; `first`: when it was, in words."""

    def __init__(self, watcher: Watcher, room_bytes: int) -> None:
        self.watcher, self.room_bytes = watcher, room_bytes
        self.player = Player(watcher.log, CachingAllocator(room_bytes))
        self.least = room_bytes // 2
        self.caught, self.first = 0, ""

    def refusal(self) -> Exception | None:
        """The error of the allocation that was asked for last, where it does not fit and somebody waits for that."""
        try:
            self.player.advance()
        except NoRoomError as full:
            if not awaited():
                self.least = sys.maxsize  # it goes on beyond the card, and no room is left to look at
                return None
            self.caught += 1
            self.first = self.first or f"{users_line()} asked for {format_bytes(full.wanted)}"
            return self._error(full.wanted)
        return None

    def forget_the_try(self) -> None:
        """What was tried is no moment of a step: nobody stays with a batch that does not fit."""
        events = self.watcher.log.events
        for place in range(len(events) - 1, -1, -1):
            kind, label = events[place]
            if kind == MARK and str(label).endswith(_AHEAD):
                break
            if kind == MARK:
                events[place] = MARK, ""
        self.watcher.empty_cache()
        self.watcher.mark("")

    def remarks(self) -> list[str]:
        """What is said of tries that did not fit."""
        if not self.caught:
            return []
        times = counted(self.caught, "allocation")
        return [f"{times} did not fit ({self.first}), which the script caught: the moments are those of what fits"]

    def _error(self, wanted: int) -> Exception:
        held, kept = self.player.allocator.allocated, self.player.allocator.reserved
        found: Exception = library("torch").OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {format_bytes(wanted)}. GPU 0 has a total capacity of "
            f"{format_bytes(self.room_bytes)} of which {format_bytes(max(0, self.room_bytes - kept))} is free. Of the "
            f"allocated memory {format_bytes(held)} is allocated by PyTorch, and {format_bytes(kept - held)} is "
            "reserved by PyTorch but unallocated."
        )
        return found


def awaited() -> bool:
    """Whether a function that runs is inside of a `try` whose handler speaks of memory that is out."""
    frame = sys._getframe(1)
    while frame is not None:
        if _speaks_of_it(frame.f_code) and _is_tried(frame.f_code, frame.f_lasti):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _speaks_of_it(code: CodeType) -> bool:
    if "/vramwise/dryrun/" in code.co_filename:
        return False
    words = (one for one in code.co_consts if isinstance(one, str) and len(one) < len(_WORDS) + 40)
    return bool(_NAMES & set(code.co_names)) or any(_WORDS in one.lower() for one in words)


def _is_tried(code: CodeType, at: int) -> bool:
    """Whether an instruction lies in a range of the code's table of handlers (CPython, InternalDocs)."""
    table: Any = library("dis")
    return any(one.start <= at < one.end for one in table._parse_exception_table(code))
