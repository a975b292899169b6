"""Files side by side that are read by ranges: a folder on disk or a repository on a hub, the same to every parser."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol

from vramwise.errors import SourceError
from vramwise.files import open_to_read, shown_path
from vramwise.units import KIB, MIB, format_bytes

MOST_LISTED = 20_000
"""Files of a folder that are looked at; a repository has some hundreds."""
_FIRST_CHUNK, _LARGEST_CHUNK = 256 * KIB, 2 * MIB


class RangedFiles(Protocol):
    """Files by their path under one place, with `/` between its parts.

    `name` is what messages say of the place; `at_once` how many reads may be under way at the same time.
    """

    @property
    def name(self) -> str: ...
    @property
    def at_once(self) -> int: ...

    def files(self) -> Mapping[str, int | None]:
        """Every file with its size in bytes where that is known."""
        ...

    def size(self, path: str) -> int | None:
        """Bytes of one of the files, None where that is not known."""
        ...

    def read(self, path: str, most_bytes: int) -> bytes:
        """A small file, whole. Raises SourceError for one that is missing or larger than `most_bytes`."""
        ...

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to before `stop`, fewer only where the file ends. Raises SourceError."""
        ...


class LocalFiles:
    """The files of a folder and of its sub-folders, none deeper."""

    at_once = 1

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder

    def files(self) -> Mapping[str, int | None]:
        return dict(sorted(_sizes(self.folder, 1).items()))

    def size(self, path: str) -> int | None:
        try:
            return os.path.getsize(os.path.join(self.folder, *path.split("/")))
        except (OSError, ValueError):
            return None

    def read(self, path: str, most_bytes: int) -> bytes:
        content = self.read_range(path, 0, most_bytes + 1)
        if len(content) > most_bytes:
            raise SourceError(f"{shown_in(self, path)}: is larger than {format_bytes(most_bytes, 'MiB', 0)}")
        return content

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        shown, place = shown_in(self, path), os.path.join(self.folder, *path.split("/"))
        try:
            if not os.path.isfile(place):
                raise SourceError(f"{shown}: there is no such file")
            with open_to_read(place) as file:
                file.seek(start)
                return file.read(max(0, stop - start))
        except OSError as problem:
            raise SourceError(f"{shown}: {problem.strerror or problem}") from None
        except ValueError:  # a NUL character in the name
            raise SourceError(f"{shown}: is no file name") from None


class RangedStream:
    """One of the files, read from its start and passed over in parts, as an open file is."""

    def __init__(self, files: RangedFiles, path: str) -> None:
        self._files, self._path = files, path
        self._at, self._first, self._held = 0, 0, b""
        self._chunk = _FIRST_CHUNK

    def tell(self) -> int:
        return self._at

    def skip(self, count: int) -> None:
        self._at += count

    def read(self, count: int) -> bytes:
        offset = self._at - self._first
        if not 0 <= offset <= len(self._held):
            self._first, self._held, offset = self._at, b"", 0
        missing = offset + count - len(self._held)
        if missing > 0:
            end = self._first + len(self._held)
            more = self._files.read_range(self._path, end, end + max(missing, self._chunk))
            self._first, self._held, offset = self._at, self._held[offset:] + more, 0
            self._chunk = min(2 * self._chunk, _LARGEST_CHUNK)
        self._at += count
        return self._held[offset : offset + count]


def shown_in(files: RangedFiles, path: str) -> str:
    """A file's place and path for a message: on one line, cut where it is long."""
    return shown_path(os.path.join(files.name, path) if path else files.name)


def _sizes(folder: str, deeper: int) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    try:
        with os.scandir(folder or ".") as entries:
            for one in entries:
                if len(found) >= MOST_LISTED:
                    break
                if one.is_file():
                    found[one.name] = one.stat().st_size
                elif deeper and one.is_dir() and not one.name.startswith("."):
                    inner = _sizes(one.path, deeper - 1)
                    found.update((f"{one.name}/{name}", size) for name, size in inner.items())
    except (OSError, ValueError):
        return found
    return found
