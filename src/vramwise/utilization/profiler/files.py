"""The traces that files, folders, patterns and archives hold."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from vramwise.errors import SourceError, clipped
from vramwise.utilization.profiler.trace import (
    GZIP_MAGIC,
    MOST_ENTRIES,
    START_BYTES,
    SUFFIXES,
    TraceFile,
    gunzipped,
    json_trace,
    plain,
    refuse_bomb,
    unpacked,
)

if TYPE_CHECKING:
    from pathlib import Path
    from zipfile import ZipInfo

ZIP_MAGIC = b"PK\x03\x04"
MOST_FILES = 4096
"""At once in memory; the tables of a job (`-o`) take as many as there are."""
_MAGIC = frozenset("*?[")
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP})
_ODD_STARTS, _ODD = ("./", "//"), ("//", "/./")
KERNELS, WHOLE_RUNS = "_kernel_trace.csv", ("_results.json", "_results.db")


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
        if "://" in text:
            from vramwise.utilization.profiler.remote import remote_paths

            found += remote_paths(text)
        elif os.path.isdir(text):
            found += _in_folder(text)
        elif not _MAGIC.isdisjoint(text) and not os.path.exists(text):
            found += _matching(text)
        else:
            found.append(text)
    return found


def _in_folder(text: str) -> list[str]:
    from pathlib import Path

    path = Path(text)
    inside = _named_as_traces(path.iterdir()) or _named_as_traces(islice(path.rglob("*"), MOST_ENTRIES))
    if not inside:
        raise SourceError(f"{shown(str(path))}: no trace in this folder (expected {', '.join(SUFFIXES)})")
    return inside


def _matching(pattern: str) -> list[str]:
    from glob import iglob

    matching = sorted(each for each in islice(iglob(pattern, recursive=True), MOST_ENTRIES) if os.path.isfile(each))
    if not matching:
        raise SourceError(f"{shown(_written(pattern))}: no file matches this pattern")
    return matching


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
    path = _written(name)
    try:
        stored = _size_of(path)
        with open(path, "rb") as file:
            magic = file.read(START_BYTES)
    except (OSError, ValueError) as error:
        raise SourceError(f"{shown(path)}: {getattr(error, 'strerror', None) or error}") from None
    if not stored:
        raise SourceError(f"{shown(path)}: empty file")
    if magic.startswith(ZIP_MAGIC):
        return _in_zip(path)
    compressed = magic.startswith(GZIP_MAGIC)
    if not compressed and magic[:1] not in b"{[":
        from pathlib import Path

        from vramwise.utilization.profiler.readers.recognized import other_traces

        if (found := other_traces(Path(path), magic)) is not None:
            return found
    return [json_trace(path, stored, lambda: _read(path, compressed), magic)]


def _size_of(path: str) -> int:
    """Raises SourceError for what is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno not in _NOT_THERE:
            raise
        raise SourceError(f"{shown(path)}: no such file or folder") from None
    if not stat.S_ISREG(found.st_mode):
        raise SourceError(f"{shown(path)}: not a file")
    return found.st_size


def _written(name: str) -> str:
    """As pathlib writes it, which takes as long to import as much of what reads a trace: only where it may differ."""
    if os.sep == "/" and name and not name.startswith(_ODD_STARTS) and not any(odd in name + "/" for odd in _ODD):
        return name
    from pathlib import Path

    return str(Path(name))


def _read(path: str, compressed: bool) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from unpacked(file, shown(path), compressed=compressed)
    except OSError as error:
        raise SourceError(f"{shown(path)}: {error.strerror or error}") from None


def _in_zip(path: str) -> list[TraceFile]:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if info.filename.endswith((".json", ".json.gz"))]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise SourceError(f"{shown(path)}: damaged zip file ({clipped(str(error))})") from None
    if not members:
        raise SourceError(f"{shown(path)}: no .json or .json.gz in this zip file")
    _refuse_too_many(len(members), path)
    return [_member(path, info) for info in sorted(members, key=lambda info: info.filename)]


def _member(path: str, info: ZipInfo) -> TraceFile:
    import zipfile

    name = f"{shown(path)}:{clipped(info.filename, 120)}"

    def chunks() -> Iterator[bytes]:
        written = 0
        try:
            with zipfile.ZipFile(path) as archive, archive.open(info) as file:
                if info.filename.endswith(".gz"):
                    yield from gunzipped(file, name)
                    return
                for piece in plain(file):
                    written += len(piece)
                    refuse_bomb(name, info.compress_size, written)
                    yield piece
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
            raise SourceError(f"{name}: cannot be unpacked ({clipped(str(error))})") from None

    return TraceFile(f"{path}:{info.filename}", info.compress_size, chunks)


def _refuse_too_many(count: int, path: str) -> None:
    if count > MOST_FILES:
        raise SourceError(f"{shown(path)}: {count:,} traces; at most {MOST_FILES:,} are read of one file")


def shown(path: str) -> str:
    """The path as a person reads it: from the folder that one is in."""
    text = path
    with suppress(ValueError, OSError):
        if os.path.isabs(path) and path.startswith(os.path.join(os.getcwd(), "")):
            text = os.path.relpath(path)
    return clipped(text, 200)
