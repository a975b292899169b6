"""Events that nothing is made of, left out of a trace's text before it is decoded: over half of most traces.

A trace that a profiler wrote has its events apart by line breaks, which stand in no JSON string, and each begins with
its kind and category. So the text is cut at what separates the first two events, and pieces that begin as operators,
Python functions or flows do are dropped. What is cut wrongly (a list of objects inside an event, of all things written
alike) is no valid JSON any more, or was in no field that is read: the caller decodes the whole text where this fails.
"""

from __future__ import annotations

import re
from typing import Final

_FIRST: Final = re.compile(rb'\s*\{(\s*)"ph": "')
_UNNEEDED: Final = (  # a text: only a process without msgspec compiles it
    rb'"ph": "(?:X",\s*"cat": "(?:(?:cpu_op|Operator)",\s*"name": "(?![^"]*(?:mm"|ProfilerStep))|'
    rb'(?:python_function|Trace)")|[sf]",\s*+"id": [^,"{}]*+,\s*+'
    rb'(?:"pid": [^,{}]*+,\s*+"tid": [^,{}]*+,\s*+"ts": [^,"{}]*+,\s*+)?'  # these stand before or behind it
    rb'"cat": "(?:ac2g|async_cpu_to_gpu|async|fwdbwd)")'
)
"""What `collect` never needs, and operators, of which it needs matrix products (…mm) and steps."""
LEAST_EVENTS: Final = 8


class Sieve:
    """For one trace: what stands between its events is looked for once."""

    def __init__(self) -> None:
        self._between: bytes | None = None
        self._unneeded = re.compile(_UNNEEDED).match

    def needed(self, text: bytes) -> tuple[bytes, int]:
        """The text of whole events without those that are not needed, and how many were left out."""
        if self._between is None:
            self._between = _between(text)
        pieces = text.split(self._between) if self._between else []
        if len(pieces) < LEAST_EVENTS:
            return text, 0
        unneeded, escapes = self._unneeded, b"\\" in text
        kept = [
            piece for piece in pieces[1:-1]
            # what is left out can be nothing but one whole event
            if not unneeded(piece) or piece.count(b"{") != piece.count(b"}") or (escapes and b"\\" in piece)
        ]  # fmt: skip
        return self._between.join((pieces[0], *kept, pieces[-1])), len(pieces) - 2 - len(kept)


def _between(text: bytes) -> bytes:
    """What stands between two events that are indented as the first is; nothing where no line break does."""
    first = _FIRST.match(text)
    if first is None:
        return b""
    found = re.search(rb'\s*\}\s*,\s*\{%s(?="ph": ")' % re.escape(first[1]), text)
    return found[0] if found is not None and b"\n" in found[0] else b""
