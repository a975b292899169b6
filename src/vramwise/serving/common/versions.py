"""Engine versions as tuples that compare."""

from __future__ import annotations

import re
from functools import lru_cache

from vramwise.errors import clipped

Version = tuple[int, ...]
LATEST: Version = (999,)
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


@lru_cache(maxsize=256)
def version_of(text: str | None) -> Version:
    """`"0.11.0"` -> (0, 11, 0), `"b5863 (a45)"` -> (5863,); a version that is not stated or has no number is the
    latest."""
    found = _NUMBER.search(text or "")
    return tuple(int(piece) for piece in found.group().split(".")) if found else LATEST


def shown_version(version: Version) -> str:
    """`(0, 8, 5)` -> `"0.8.5"`; a piece that stands for the last release of a series is left out."""
    return ".".join(str(piece) for piece in version if piece < LATEST[0])


def at_version(engine: str, version: Version) -> str:
    """`vLLM 0.8.5`; the name alone where no version is stated."""
    return engine if version == LATEST else f"{engine} {shown_version(version)}"


def version_notes(engine: str, given: str | None, newest: str) -> tuple[str, ...]:
    """What was assumed about an engine's version: nothing where the scenario states one."""
    if given is None:
        return (f"{engine} {newest} is assumed; defaults and the budget differ by version",)
    if version_of(given) == LATEST:
        return (f'"{clipped(given)}" is no version number: the rules of {engine} {newest} are taken',)
    if version_of(given)[:2] > version_of(newest)[:2]:
        return (f"{engine} {clipped(given)} is newer than any that is known here: taken as {newest}, check it",)
    return ()
