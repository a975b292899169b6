"""Traces in object stores and on other machines, by the addresses and packages of fsspec: s3://, gs://, memory://, …

Credentials and endpoints are those of the store's own package: s3fs takes AWS's variables and files, gcsfs Google's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, Final

from vramwise.errors import SourceError, UsageError, VramwiseError, clipped
from vramwise.units import MIB
from vramwise.utilization.profiler.trace import (
    GZIP_MAGIC,
    MOST_ENTRIES,
    START_BYTES,
    SUFFIXES,
    TraceFile,
    json_trace,
    unpacked,
)

BLOCK_BYTES: Final = 4 * MIB
"""Read ahead at once; some stores' packages would take fifty."""
FOREIGN: Final = ("::", "\n")
"""Chains of file systems, which may cache what they read on disk."""


def remote_paths(address: str) -> list[str]:
    """The files of a folder or a pattern as addresses, sorted; the address itself for anything else.

    Raises SourceError, and VramwiseError without the package for its scheme.
    """
    with _said(address):
        store, path = _store(address)
        if any(sign in path for sign in "*?["):
            found = [each for each in islice(store.glob(path), MOST_ENTRIES) if each.rstrip("/") != path]
            what = "no file matches this pattern"
        elif store.isdir(path):
            below = islice(store.find(path), MOST_ENTRIES)
            named = [each for each in below if each.endswith(SUFFIXES)]
            depth = path.rstrip("/").count("/") + 1
            found = [each for each in named if each.count("/") == depth] or named
            what = f"no trace in this folder (expected {', '.join(SUFFIXES)})"
        else:
            return [address]
        if not found:
            raise SourceError(f"{_shown(address)}: {what}")
        return sorted(store.unstrip_protocol(each) for each in found)


def remote_trace(address: str) -> TraceFile:
    """One file, JSON or its gzip. Raises SourceError."""
    with _said(address):
        store, path = _store(address)
        size = int(store.info(path)["size"] or 0)
        with store.open(path, "rb", block_size=BLOCK_BYTES) as file:
            start = file.read(START_BYTES)
    if not start:
        raise SourceError(f"{_shown(address)}: empty file")
    compressed = start.startswith(GZIP_MAGIC)
    if not compressed and start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        raise SourceError(f"{_shown(address)}: neither JSON nor gzip: other kinds of traces are read of local files")

    def chunks() -> Iterator[bytes]:
        with _said(address), store.open(path, "rb", block_size=BLOCK_BYTES) as file:
            yield from unpacked(file, _shown(address), compressed=compressed)

    return json_trace(address, size, chunks, start)


def remote_stamp(address: str) -> tuple[int, str]:
    """The size of a file, and what changes when it does. Raises SourceError."""
    with _said(address):
        store, path = _store(address)
        return int(store.info(path)["size"] or 0), str(store.ukey(path))


def _store(address: str) -> tuple[Any, str]:
    if any(sign in address for sign in FOREIGN):
        raise UsageError(f'"{_shown(address)}": expected one address, SCHEME://PATH')
    try:
        core = import_module("fsspec.core")
    except ImportError:
        raise VramwiseError(f"{_shown(address)}: addresses need fsspec: pip install 'vramwise[scale]'") from None
    store, path = core.url_to_fs(address)
    return store, path


@contextmanager
def _said(address: str) -> Iterator[None]:
    """What a store's package raises, in one line that names the address."""
    try:
        yield
    except (VramwiseError, GeneratorExit):
        raise
    except ImportError as problem:
        raise VramwiseError(f"{_shown(address)}: {clipped(str(problem), 160)}") from None
    except FileNotFoundError:
        raise SourceError(f"{_shown(address)}: no such file or folder") from None
    except Exception as problem:  # each store's package has errors of its own
        raise SourceError(f"{_shown(address)}: {clipped(str(problem), 200) or type(problem).__name__}") from None


def _shown(address: str) -> str:
    return clipped(address, 200)
