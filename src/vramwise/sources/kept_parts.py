"""What was fetched of a repository, kept on disk: lists of files, configs and headers, by commit.

Commits do not change, so nothing here grows old; the folder may be deleted at any time. An entry is written whole or
not at all, carries its own checksum, and one that is broken is as good as none. A disk that cannot be written to is no
fault.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from vramwise.errors import SourceError
from vramwise.files import read_at_most, written
from vramwise.records import record
from vramwise.units import MIB

LARGEST_ENTRY = 64 * MIB
_MARK = b"vramwise part 1\n"
_DIGEST_BYTES = 32
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def kept_folder() -> Path:
    """VRAMWISE_CACHE, else `vramwise` in the user's cache folder."""
    if folder := os.environ.get("VRAMWISE_CACHE"):
        return Path(folder)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "vramwise"


@record
class KeptParts:
    """The entries of one repository on one host."""

    host: str
    name: str

    def commit_of(self, revision: str) -> str | None:
        """The commit that a revision meant when it was last asked for."""
        if _COMMIT.fullmatch(revision) and self._entry(revision, "files").is_file():
            return revision
        found = self._read(self._folder() / "refs" / _safe(revision))
        commit = found.decode("ascii", "replace") if found is not None else ""
        return commit if _COMMIT.fullmatch(commit) else None

    def keep_commit(self, revision: str, commit: str) -> None:
        if _COMMIT.fullmatch(commit):
            self._write(self._folder() / "refs" / _safe(revision), commit.encode())

    def files(self, commit: str) -> dict[str, int | None] | None:
        """The sizes of a commit's files by path."""
        found = self._read(self._entry(commit, "files"))
        try:
            table = json.loads(found) if found is not None else None
        except ValueError:
            return None
        if not isinstance(table, dict):
            return None
        return {path: size if type(size) is int else None for path, size in table.items()}

    def keep_files(self, commit: str, sizes: Mapping[str, int | None]) -> None:
        self._write(self._entry(commit, "files"), json.dumps(dict(sizes)).encode())

    def start_of(self, commit: str, path: str) -> bytes:
        """As much of the file from its start as was fetched before."""
        return self._read(self._entry(commit, "parts", path)) or b""

    def keep_start(self, commit: str, path: str, content: bytes) -> None:
        self._write(self._entry(commit, "parts", path), content)

    def _folder(self) -> Path:
        return kept_folder() / _safe(self.host) / _safe(self.name)

    def _entry(self, commit: str, *place: str) -> Path:
        return self._folder().joinpath(_safe(commit), *map(_safe, place))

    def _read(self, path: Path) -> bytes | None:
        if not path.is_file():
            return None
        try:
            content = read_at_most(path, LARGEST_ENTRY)
        except SourceError:
            return None
        head = len(_MARK) + _DIGEST_BYTES
        body = content[head:]
        is_whole = content.startswith(_MARK) and sha256(body).digest() == content[len(_MARK) : head]
        return body if is_whole else None

    def _write(self, path: Path, body: bytes) -> None:
        if len(body) > LARGEST_ENTRY // 2:
            return
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with written(path, "wb") as out:
                out.write(_MARK + sha256(body).digest() + body)


def _safe(part: str) -> str:
    """A name as that of a single file: no separator, no dots alone, not too long."""
    text = quote(part, safe=" ").replace(".", "%2E") if set(part) <= {"."} else quote(part, safe=" ")
    return text if len(text) <= 150 else f"{text[:80]}-{sha256(part.encode()).hexdigest()[:32]}"
