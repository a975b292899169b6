"""What a normal run takes of many tests that are alike: a part, the same every time; a thorough run takes all of them.

The part hangs on each one's name, not on its place, so that one more of them moves no other's turn. Tests of the same
names give other turns, so that what one of them leaves out another has.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from hypothesis import settings

THOROUGH = "thorough"


def is_thorough() -> bool:
    """Whether this run is the scheduled one (scripts/test --thorough)."""
    return settings.get_current_profile_name() == THOROUGH


def has_turn(name: str, of: int, turn: int = 0) -> bool:
    """Whether what has this name is in the part of one in `of` that a normal run takes."""
    return is_thorough() or (crc32(name.encode()) + turn) % of == 0


def by_turns(every: Iterable[str], of: int, turn: int = 0) -> list[str]:
    """One in `of` of the names in a normal run, all of them in a thorough one."""
    return [name for name in every if has_turn(name, of, turn)]
