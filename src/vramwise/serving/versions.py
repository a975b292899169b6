"""Engine versions as tuples that compare."""

from __future__ import annotations

import re
from functools import lru_cache

LATEST = (999,)
_NUMBER = re.compile(r"\d+(?:\.\d+)*")


@lru_cache(maxsize=256)
def version_of(text: str | None) -> tuple[int, ...]:
    """`"0.11.0"` -> (0, 11, 0), `"b5863 (a45)"` -> (5863,); a version that is not stated or has no number is the
    latest."""
    found = _NUMBER.search(text or "")
    return tuple(int(piece) for piece in found.group().split(".")) if found else LATEST
