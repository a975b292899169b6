"""Trace files as streams of bytes: plain JSON, gzip, zip, folders of them; bounded memory whatever they hold."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from glob import has_magic, iglob
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from vramwise.errors import SourceError, clipped
from vramwise.units import KIB, MIB

if TYPE_CHECKING:
    from zipfile import ZipInfo

    from vramwise.utilization.profiler.readers.rows import RowStream

CHUNK_BYTES = 128 * KIB
"""Text is handed on in pieces of about this size."""
FREE_BYTES = 64 * MIB
"""So much may come out of any file before its compression ratio counts."""
GREATEST_RATIO = 200
"""Kineto's JSON shrinks 10 to 40 times; what shrinks more than this is not a trace."""
MOST_FILES = 4096
"""At once in memory; the tables of a job (`-o`) take as many as there are."""
MOST_ENTRIES = 2_000_000
START_BYTES = 512
GZIP_MAGIC, ZIP_MAGIC = b"\x1f\x8b", b"PK\x03\x04"
ROCPROF = b'"rocprofiler-sdk-tool"'
"""The first key of rocprofv3's JSON."""
SUFFIXES = (".json", ".json.gz", ".zip", ".sqlite", "_results.db", ".xplane.pb", ".et", "_kernel_trace.csv")
KERNELS, WHOLE_RUNS = "_kernel_trace.csv", ("_results.json", "_results.db")


class TraceFile(NamedTuple):
    """One trace: what to call it, how large it is on disk, and its text, opened anew by each call of `chunks`.

    A trace of another profiler has no text: `rows` gives its events (the argument: whether to take a cut-off file).
    """

    name: str
    stored_bytes: int
    chunks: Callable[[], Iterator[bytes]]
    rows: Callable[[bool], RowStream] | None = None


def trace_files(paths: Iterable[str]) -> list[TraceFile]:
    """The traces that files, folders and patterns hold. Raises SourceError."""
    return [trace for path in trace_paths(paths) for trace in in_file(path)]


def trace_paths(paths: Iterable[str]) -> list[str]:
    """The files that are meant, folders and patterns (`*`, `**`) in the order of their names.

    A folder counts with the files whose names end with one of SUFFIXES; without any, with those of its folders, as a
    job has them that writes one folder a machine. Raises SourceError.
    """
    found: list[str] = []
    for text in paths:
        path = Path(text)
        if "://" in text:
            from vramwise.utilization.profiler.remote import remote_paths

            found += remote_paths(text)
        elif path.is_dir():
            inside = _named_as_traces(path.iterdir()) or _named_as_traces(islice(path.rglob("*"), MOST_ENTRIES))
            if not inside:
                raise SourceError(f"{_shown(path)}: no trace in this folder (expected {', '.join(SUFFIXES)})")
            found += inside
        elif has_magic(text) and not path.exists():
            matching = sorted(
                each for each in islice(iglob(text, recursive=True), MOST_ENTRIES) if Path(each).is_file()
            )
            if not matching:
                raise SourceError(f"{_shown(path)}: no file matches this pattern")
            found += matching
        else:
            found.append(text)
    return found


def _named_as_traces(entries: Iterable[Path]) -> list[str]:
    return once_each([str(entry) for entry in sorted(entries) if entry.name.endswith(SUFFIXES) and entry.is_file()])


def once_each(traces: list[str]) -> list[str]:
    """Without rocprofv3's tables of a run that it wrote as JSON or as a database too."""
    there = set(traces)
    return [
        each for each in traces
        if not each.endswith(KERNELS) or there.isdisjoint(each.removesuffix(KERNELS) + end for end in WHOLE_RUNS)
    ]  # fmt: skip


def in_file(name: str) -> list[TraceFile]:
    """The traces of one file: some hold several ranks. Raises SourceError."""
    if "://" in name:
        from vramwise.utilization.profiler.remote import remote_trace

        return [remote_trace(name)]
    path = Path(name)
    try:
        if not path.is_file():
            what = "no such file or folder" if not path.exists() else "not a file"
            raise SourceError(f"{_shown(path)}: {what}")
        stored = path.stat().st_size
        with open(path, "rb") as file:
            magic = file.read(START_BYTES)
    except (OSError, ValueError) as error:
        raise SourceError(f"{_shown(path)}: {getattr(error, 'strerror', None) or error}") from None
    if not stored:
        raise SourceError(f"{_shown(path)}: empty file")
    if magic.startswith(ZIP_MAGIC):
        return _in_zip(path)
    compressed = magic.startswith(GZIP_MAGIC)
    if not compressed and magic[:1] not in b"{[":
        from vramwise.utilization.profiler.readers.recognized import other_traces

        if (found := other_traces(path, magic)) is not None:
            return found
    return [json_trace(str(path), stored, lambda: _read(path, compressed), magic)]


def json_trace(name: str, stored_bytes: int, chunks: Callable[[], Iterator[bytes]], magic: bytes) -> TraceFile:
    """A trace that is JSON, of Kineto or of rocprofv3. `magic`: how its file begins."""
    start = next(chunks(), b"") if magic.startswith(GZIP_MAGIC) else magic
    if ROCPROF in start[:START_BYTES]:
        from vramwise.utilization.profiler.readers.recognized import rocprof_trace

        return rocprof_trace(name, stored_bytes, chunks)
    return TraceFile(name, stored_bytes, chunks)


def _read(path: Path, compressed: bool) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from unpacked(file, _shown(path), compressed=compressed)
    except OSError as error:
        raise SourceError(f"{_shown(path)}: {error.strerror or error}") from None


def unpacked(file: IO[bytes], name: str, *, compressed: bool) -> Iterator[bytes]:
    """The text of a file in pieces. Raises SourceError for damaged gzip."""
    return _gunzipped(file, name) if compressed else _plain(file)


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK_BYTES):
        yield piece


def _gunzipped(file: IO[bytes], name: str) -> Iterator[bytes]:
    """The text of a gzip file, member after member, never more than a chunk of it at a time."""
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
        _refuse_bomb(name, read, written)
        if piece:
            yield piece
    if not unpacker.eof:
        raise SourceError(f"{name}: the gzip data end too early (truncated)")


def _in_zip(path: Path) -> list[TraceFile]:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith((".json", ".json.gz"))]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SourceError(f"{_shown(path)}: damaged zip file ({clipped(str(error))})") from None
    if not members:
        raise SourceError(f"{_shown(path)}: no .json or .json.gz in this zip file")
    _refuse_too_many(len(members), path)
    return [_member(path, info) for info in sorted(members, key=lambda info: info.filename)]


def _member(path: Path, info: ZipInfo) -> TraceFile:
    import zipfile

    name = f"{_shown(path)}:{clipped(info.filename, 120)}"

    def chunks() -> Iterator[bytes]:
        written = 0
        try:
            with zipfile.ZipFile(path) as archive, archive.open(info) as file:
                if info.filename.endswith(".gz"):
                    yield from _gunzipped(file, name)
                    return
                for piece in _plain(file):
                    written += len(piece)
                    _refuse_bomb(name, info.compress_size, written)
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise SourceError(f"{name}: cannot be unpacked ({clipped(str(error))})") from None

    return TraceFile(f"{path}:{info.filename}", info.compress_size, chunks)


def _refuse_bomb(name: str, read: int, written: int) -> None:
    if written > FREE_BYTES and written > GREATEST_RATIO * max(read, 1):
        raise SourceError(f"{name}: expands more than {GREATEST_RATIO} times, which no trace does: not read further")


def _refuse_too_many(count: int, path: Path) -> None:
    if count > MOST_FILES:
        raise SourceError(f"{_shown(path)}: {count:,} traces; at most {MOST_FILES:,} are read of one file")


def _shown(path: Path) -> str:
    text = str(path)
    with suppress(ValueError, OSError):
        text = os.path.relpath(path) if path.is_absolute() and Path.cwd() in path.parents else text
    return clipped(text, 200)
