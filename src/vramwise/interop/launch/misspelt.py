"""Flags that nobody knows and that look like one that counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from vramwise.errors import Misspelt, clipped, nearest

_LETTERS, _SHORT = 2, 8
"""Letters by which a misspelt flag differs at most, and how long one must be to be told."""


def misspelt_notes(unknown: Collection[str], counted: Collection[str]) -> Iterator[Misspelt]:
    """A note for each flag or key that misspells one of those that count."""
    for flag in unknown:
        meant = _meant(flag, counted)
        if meant:
            yield Misspelt(f"{clipped(flag)}: did you mean {meant}?")


def _meant(flag: str, counted: Collection[str]) -> str:
    """The flag that counts and that one differs from in a letter or two; "" for none."""
    near = nearest(flag, (one for one in counted if abs(len(one) - len(flag)) <= _LETTERS), 1)
    return near[0] if near and len(flag) > _SHORT and _shared(flag, near[0]) >= len(near[0]) - _LETTERS else ""


def _shared(one: str, other: str) -> int:
    """Letters that two words have in common, in their order."""
    from difflib import SequenceMatcher  # only a misspelt word needs it

    return sum(block.size for block in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks())
