"""Python tracebacks in a log: the stack of the error nearest to a place in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vramwise.measure.snapshot import Frame, Stack

_FRAME = re.compile(r'^[^\n"]*?File "([^"\n]+)", line (\d+), in ([^\n]+)\n(?:[^\n"]*?(?P<code>[^\n]*))?', re.MULTILINE)
_HEAD = "Traceback (most recent call last)"
_LONGEST = 200_000
"""Characters of one traceback; Python shows a recursion's repeated frames once, so that 1,000 calls are far less."""


@dataclass(frozen=True, slots=True)
class Traceback:
    """Frames innermost first, and the innermost line of source."""

    stack: Stack
    code: tuple[str, ...]


def traceback_before(text: str, position: int) -> Traceback | None:
    """The traceback that ends in the message at `position`, or None."""
    head = text.rfind(_HEAD, max(0, position - _LONGEST), position)
    if head < 0:
        return None
    frames: list[Frame] = []
    code: list[str] = []
    for match in _FRAME.finditer(text, head, position):
        frames.append(Frame(match.group(1), int(match.group(2)), match.group(3).strip()))
        line = match.group("code") or ""
        code.append("" if 'File "' in line else _source(line))
    frames.reverse()
    code.reverse()
    return Traceback(tuple(frames), tuple(code)) if frames else None


def _source(line: str) -> str:
    return re.sub(r"^(?:\s*\[[\w:. -]{1,40}\]:?)?[\s>|│]*", "", line).strip().rstrip("^~ ")
