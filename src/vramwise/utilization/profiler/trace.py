"""One trace as a stream of text, packed or not: bounded memory whatever its file holds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, TYPE_CHECKING, NamedTuple

from vramwise.errors import SourceError
from vramwise.units import KIB, MIB

if TYPE_CHECKING:
    from vramwise.utilization.profiler.readers.rows import RowStream

CHUNK_BYTES = 64 * KIB
"""Text is handed on in pieces of about this size."""
FREE_BYTES = 64 * MIB
"""So much may come out of any file before its compression ratio counts."""
GREATEST_RATIO = 200
"""Kineto's JSON shrinks 10 to 40 times; what shrinks more than this is not a trace."""
MOST_ENTRIES = 2_000_000
"""Of a folder that are looked at."""
SUFFIXES = (".json", ".json.gz", ".zip", ".sqlite", "_results.db", ".xplane.pb", ".et", "_kernel_trace.csv")
START_BYTES = 512
GZIP_MAGIC = b"\x1f\x8b"
ROCPROF = b'"rocprofiler-sdk-tool"'
"""The first key of rocprofv3's JSON."""


class CutOff(SourceError):
    """The packed data end too early, as of a program that was ended while it wrote: what came before is whole."""


class TraceFile(NamedTuple):
    """One trace: what to call it, how large it is on disk, and its text, opened anew by each call of `chunks`.

    A trace of another profiler has no text: `rows` gives its events (the argument: whether to take a cut-off file).
    """

    name: str
    stored_bytes: int
    chunks: Callable[[], Iterator[bytes]]
    rows: Callable[[bool], RowStream] | None = None


def json_trace(name: str, stored_bytes: int, chunks: Callable[[], Iterator[bytes]], magic: bytes) -> TraceFile:
    """A trace that is JSON, of Kineto or of rocprofv3. `magic`: how its file begins."""
    start = magic
    if magic.startswith(GZIP_MAGIC):
        start = next(as_far_as_it_goes(chunks(), partial=True), b"")
    if ROCPROF not in start[:START_BYTES]:
        return TraceFile(name, stored_bytes, chunks)
    from vramwise.utilization.profiler.readers.rocprof_json import rows
    from vramwise.utilization.profiler.readers.rows import RowStream

    return TraceFile(
        name, stored_bytes, no_text,
        lambda partial: RowStream(
            name, lambda stream: rows(as_far_as_it_goes(chunks(), partial=partial), stream), partial=partial
        ),
    )  # fmt: skip


def no_text() -> Iterator[bytes]:
    """In place of a trace's text where another profiler wrote it. Raises SourceError."""
    raise SourceError("this trace is no JSON text")


def unpacked(file: IO[bytes], name: str, *, compressed: bool) -> Iterator[bytes]:
    """The text of a file in pieces. Raises SourceError for damaged gzip."""
    return gunzipped(file, name) if compressed else plain(file)


def plain(file: IO[bytes]) -> Iterator[bytes]:
    """The text of a file that is not compressed."""
    while piece := file.read(CHUNK_BYTES):
        yield piece


def gunzipped(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The text of a gzip file, member after member, never more than a chunk of it at a time. Raises SourceError for a
    damaged one, CutOff for one that ends too early."""
    read, written = 0, 0
    unpacker = zlib.decompressobj(wbits=31)
    waiting = b""
    while waiting or (waiting := file.read(CHUNK_BYTES // 4)):
        if unpacker.eof:
            if not waiting.strip(b"\0"):
                waiting = b""
                continue
            unpacker = zlib.decompressobj(wbits=31)
        try:
            piece = unpacker.decompress(waiting, CHUNK_BYTES)
        except zlib.error as error:
            raise SourceError(f"{name}: damaged gzip data ({error})") from None
        left = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        read += len(waiting) - len(left)
        written += len(piece)
        waiting = left
        refuse_bomb(name, read, written)
        if piece:
            yield piece
    if not unpacker.eof:
        raise CutOff(f"{name}: the gzip data end too early (truncated; --partial reads what is there)")


def as_far_as_it_goes(chunks: Iterator[bytes], *, partial: bool) -> Iterator[bytes]:
    """The text, with `partial` that of a packed file that ends too early too."""
    with suppress(*[CutOff] * partial):
        yield from chunks


def refuse_bomb(name: str, read: int, written: int) -> None:
    """Raises SourceError for what expands as no trace does."""
    if written > FREE_BYTES and written > GREATEST_RATIO * max(read, 1):
        raise SourceError(f"{name}: expands more than {GREATEST_RATIO} times, which no trace does: not read further")
