"""A trace's text, piece by piece, as batches of events: nothing is held but one batch.

Cutting is sound whatever the text is: a batch is accepted only when it is a whole JSON list, which a cut inside a
string or a nested object cannot give.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from vramwise.errors import SourceError, clipped
from vramwise.units import KIB, MIB
from vramwise.utilization.profiler.decode import (
    BadBatch,
    fast_decoders,
    load_json,
    plain_decoder,
    plain_events,
)
from vramwise.utilization.profiler.sieve import Sieve
from vramwise.utilization.profiler.trace import as_far_as_it_goes

if TYPE_CHECKING:
    from vramwise.utilization.profiler.decode import Decoder, Event
    from vramwise.utilization.profiler.readers.rows import RowStream
    from vramwise.utilization.profiler.trace import TraceFile

BATCH_BYTES = 64 * KIB
"""Small enough to stay in a processor's cache: eight times as much takes a third longer."""
LARGEST_PIECE = 16 * MIB
"""An event or a footer longer than this is refused: decoded, nested lists take twenty times as much."""
LARGEST_HEADER = 16 * MIB
"""Keys before the events; the process groups of a job of thousands of ranks are some of these."""
MOST_HEADERS = 32
TRIES = 6
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BARE_LIST = re.compile(rb"\s*\[\s*[{\]]")
_BLANK = b" \t\r\n"
_FIRST_WORDS = 8


class EventStream:
    """The events of one trace. `header` holds the document's other keys, complete once `batches` has ended."""

    def __init__(self, name: str, chunks: Iterator[bytes], *, partial: bool = False) -> None:
        self.name = name
        self.header: dict[str, object] = {}
        self.truncated = False
        self.events_read = 0
        self._chunks = chunks
        self._partial = partial
        self._sieve: Sieve | None = None
        self._fast: tuple[Decoder, ...] = fast_decoders()
        self._buffer = b""
        self._ended = False
        self._opening = b""

    def batches(self) -> Iterator[list[Event]]:
        """Every event in the order of the file. Raises SourceError for what is no trace."""
        self._find_events()
        while not self._ended:
            self._fill(BATCH_BYTES)
            if self._ended:
                break
            yield self._count(self._cut_batch())
        if (events := self._cut_fast()) is not None:
            yield self._count(events)
        yield self._count(self._last_batch())

    def _count(self, events: list[Event]) -> list[Event]:
        self.events_read += len(events)
        return events

    def _fill(self, least: int) -> None:
        pieces, size = [self._buffer], len(self._buffer)
        while size < least:
            piece = next(self._chunks, None)
            if piece is None:
                self._ended = True
                break
            pieces.append(piece)
            size += len(piece)
        self._buffer = b"".join(pieces)

    def _find_events(self) -> None:
        """Read the header, and leave the buffer at the first event."""
        tries = 0
        while True:
            self._fill(2 * len(self._buffer) + 1)  # twice as much each time: all searches together are as one
            text = self._buffer.removeprefix(b"\xef\xbb\xbf")
            if not self._opening and text.lstrip(_BLANK):
                self._refuse_other_kinds(text.lstrip(_BLANK))
            if _BARE_LIST.match(text):
                self._opening, self._buffer = b"[", text[text.index(b"[") + 1 :]
                return
            for match in _EVENTS.finditer(text):
                tries += 1
                if tries > MOST_HEADERS:
                    raise SourceError(f"{self.name}: not a profiler trace: the words traceEvents stand in its header")
                try:
                    header = load_json(text[: match.start()] + b'"traceEvents":[]}')
                except BadBatch:
                    continue  # the words stand in a string, or in an object inside the header
                if isinstance(header, dict):
                    header.pop("traceEvents", None)
                    self.header, self._opening, self._buffer = header, b"{", text[match.end() :]
                    return
            if self._ended:
                raise SourceError(f"{self.name}: {self._why_no_events(text)}")
            self._refuse_large("a header", LARGEST_HEADER)

    def _refuse_other_kinds(self, text: bytes) -> None:
        if text[:1] not in b"{[":
            shown = clipped(text[:40].decode("utf-8", "replace"), 40)
            raise SourceError(f'{self.name}: not a profiler trace: expected JSON, found "{shown}"')
        self._opening = text[:1]

    @staticmethod
    def _why_no_events(text: bytes) -> str:
        try:
            document = load_json(text)
        except BadBatch:
            return "not a profiler trace: the JSON is cut off or broken before any traceEvents"
        keys = ", ".join(map(str, list(document)[:_FIRST_WORDS])) if isinstance(document, dict) else "no objects"
        return f"not a profiler trace: JSON without traceEvents (it has: {clipped(keys, 120) or 'nothing'})"

    def _cut_batch(self) -> list[Event]:
        """Events from the front of the buffer, up to the last place where a batch can end."""
        events = self._cut_fast()
        return self._one_by_one() if events is None else events

    def _cut_fast(self) -> list[Event] | None:
        """The same where one of the last places at which an event seems to begin is right; else None."""
        if self.events_read and not self._buffer.startswith(b"{"):
            self._buffer = self._buffer.lstrip(_BLANK).removeprefix(b",").lstrip(_BLANK)
        text, end = self._buffer, len(self._buffer)
        for _ in range(TRIES):
            end = text.rfind(b"{", 0, end)
            while end > 0 and not self._begins_an_event(text, end):
                end = text.rfind(b"{", 0, end)
            if end <= 0:
                break
            last = text.rindex(b"}", 0, end) + 1
            try:
                events = self._decode(text[:last])
            except BadBatch:
                continue
            self._buffer = text[end:]
            return events
        return None

    @staticmethod
    def _begins_an_event(text: bytes, brace: int) -> bool:
        before = text[max(brace - 64, 0) : brace].rstrip(_BLANK)
        return before.endswith(b",") and before[:-1].rstrip(_BLANK).endswith(b"}")

    def _decode(self, events: bytes) -> list[Event]:
        for place, decoder in enumerate(self._fast):
            try:
                batch = decoder(b"".join((b"[", events, b"]")))
            except BadBatch:
                continue
            self._fast = self._fast[place:]  # what refused this batch would refuse the next ones too
            return batch
        if self._sieve is None:
            self._sieve = Sieve()
        needed, left_out = self._sieve.needed(events)  # msgspec skips it as fast as it is cut out
        if left_out:
            with suppress(BadBatch):
                batch = plain_decoder(b"".join((b"[", needed, b"]")))
                self.events_read += left_out
                return batch
        return plain_decoder(b"".join((b"[", events, b"]")))

    def _one_by_one(self) -> list[Event]:
        """The slow way: whole events from the front of the buffer, one after the other, at least one."""
        decoder = json.JSONDecoder(parse_float=str, parse_constant=str)
        text = self._buffer.decode("utf-8", "surrogateescape")
        values: list[object] = []
        place = 0
        while True:
            place = self._past_comma(text, place, first=not values and not self.events_read)
            if place == len(text) or text[place] == "]":
                break
            try:
                value, after = decoder.raw_decode(text, place)
            except (ValueError, RecursionError):
                break
            values.append(value)
            place = after
        self._buffer = text[place:].encode("utf-8", "surrogateescape")
        if not values:
            self._refuse_large("an event", LARGEST_PIECE)
            self._fill(min(2 * len(self._buffer) + BATCH_BYTES, LARGEST_PIECE + 1))
        return plain_events(values)

    @staticmethod
    def _past_comma(text: str, place: int, *, first: bool) -> int:
        rest = re.compile(r"\s*" if first else r"\s*,?\s*").match(text, place)
        return rest.end() if rest else place

    def _last_batch(self) -> list[Event]:
        """What is left once the file has ended: the last events and the keys behind them."""
        rest = self._buffer.lstrip(_BLANK).removeprefix(b",") if self.events_read else self._buffer
        opening = b'{"traceEvents":[' if self._opening == b"{" else b"["
        try:
            document = load_json(opening + rest)
        except BadBatch:
            return self._cut_off()
        if isinstance(document, dict):
            events = document.pop("traceEvents", [])
            self.header |= document
            return plain_events(events)
        return plain_events(document)

    def _cut_off(self) -> list[Event]:
        events = self._one_by_one() if self._buffer else []
        self.truncated = True
        if not self._partial:
            count = self.events_read + len(events)
            raise SourceError(
                f"{self.name}: the JSON is cut off or broken after {count:,} events (--partial reads what is there)"
            )
        return events

    def _refuse_large(self, what: str, most: int) -> None:
        if len(self._buffer) > most:
            raise SourceError(f"{self.name}: {what} of more than {most // MIB} MiB: not a profiler trace")


def stream_of(file: TraceFile, *, partial: bool = False) -> EventStream | RowStream:
    """The events of a trace, whoever wrote it."""
    if file.rows is not None:
        return file.rows(partial)
    return EventStream(file.name, as_far_as_it_goes(file.chunks(), partial=partial), partial=partial)
