"""Who allocated what lived at a moment: module, operation and line, equal places of all layers together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from vramwise.dryrun.categories import category
from vramwise.dryrun.events import Frame, Life
from vramwise.models.allocator import ROUNDING
from vramwise.units import round_up

MOST: Final = 12
"""Groups of a category that are told apart; the others are one."""
_NUMBER: Final = re.compile(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)")
_LIBRARIES: Final = ("/site-packages/", "/dist-packages/", "/lib/python", "/vramwise/")

Group = dict[str, Any]


@lru_cache(maxsize=4096)
def line_of(stack: tuple[Frame, ...]) -> str:
    """The line to show: the innermost of the user's own code, else the innermost of a library above torch."""
    own = next((frame for frame in stack if not any(part in frame[0] for part in _LIBRARIES)), None)
    frame = own or next((f for f in stack if "/vramwise/" not in f[0]), None)
    return f"{short_path(frame[0])}:{frame[1]}" if frame is not None else ""


def short_path(path: str) -> str:
    for part in ("/site-packages/", "/dist-packages/"):
        if part in path:
            return path.rpartition(part)[2]
    return path


def groups_of(lives: Sequence[Life]) -> dict[str, list[Group]]:
    """By category: groups with bytes and count, the largest first."""
    found: dict[str, dict[tuple[str, str, str], Group]] = {}
    for life in lives:
        place = _NUMBER.sub("*", life.module), life.operation, line_of(life.stack)
        groups = found.setdefault(category(life), {})
        group = groups.setdefault(
            place, {"module": place[0], "operation": place[1], "line": place[2], "bytes": 0, "count": 0}
        )
        group["bytes"] += round_up(life.size, ROUNDING)
        group["count"] += 1
    return {name: _largest(list(groups.values())) for name, groups in found.items()}


def _largest(groups: list[Group]) -> list[Group]:
    groups.sort(key=lambda group: -int(group["bytes"]))
    rest = groups[MOST:]
    if not rest:
        return groups
    size, count = sum(group["bytes"] for group in rest), sum(group["count"] for group in rest)
    return [*groups[:MOST], {"module": "", "operation": "", "line": "", "bytes": size, "count": count}]
