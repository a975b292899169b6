"""A JSON document walked piece by piece: objects and arrays are entered, what is in them is read whole, one by one."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from vramwise.errors import SourceError
from vramwise.units import KIB, MIB

LARGEST_PIECE: Final = 64 * MIB
"""What is read whole and is longer than this is refused."""
LEAST_PIECE: Final = 128 * KIB
_BLANK: Final = re.compile(r"[ \t\r\n]*")


class BadJson(ValueError):
    """The document is no JSON here, or ends too early."""


class Walk:
    """Where one is in a document. Bytes that are no UTF-8 are replaced, as names of kernels have them."""

    def __init__(self, name: str, chunks: Iterator[bytes]) -> None:
        self._name = name
        self._chunks = chunks
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._values = json.JSONDecoder(parse_float=str, parse_constant=str)
        self._text, self._at = "", 0

    def peek(self) -> str:
        """The next character that is not blank; nothing at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def fields(self) -> Iterator[str]:
        """Enter an object: each key, whose value must be taken before the next."""
        for _ in self._entries("{}"):
            key = self.value()
            self._take(":")
            yield key if isinstance(key, str) else ""

    def items(self) -> Iterator[None]:
        """Enter an array: a turn for each value, which must be taken before the next."""
        yield from self._entries("[]")

    def value(self) -> Any:
        """The next value, whole. Raises BadJson, and SourceError for one that is too large."""
        if not self.peek():
            raise BadJson
        while True:
            try:
                found, end = self._values.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                if not self._more():
                    raise BadJson from None
                continue
            if end < len(self._text) or not self._more():  # a number may go on
                self._at = end
                return found

    def _entries(self, ends: str) -> Iterator[None]:
        self._take(ends[0])
        if self.peek() == ends[1]:
            self._take(ends[1])
            return
        while True:
            yield
            if self._take("," + ends[1]) == ends[1]:
                return

    def _take(self, one_of: str) -> str:
        found = self.peek()
        if not found or found not in one_of:
            raise BadJson
        self._at += 1
        return found

    def _more(self) -> bool:
        """Read on, each time as much as is waiting; False at the end."""
        waiting = len(self._text) - self._at
        if waiting > LARGEST_PIECE:
            raise SourceError(f"{self._name}: a value of more than {LARGEST_PIECE // MIB} MiB: not read further")
        pieces, size = [self._text[self._at :]], 0
        while size < max(waiting, LEAST_PIECE) and (piece := next(self._chunks, None)) is not None:
            pieces.append(self._decode(piece))
            size += len(piece)
        self._text, self._at = "".join(pieces), 0
        return size > 0
