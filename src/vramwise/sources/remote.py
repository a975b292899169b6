"""A repository on a hub: its list of files, small files whole, and parts of large ones, each asked for once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from threading import Lock
from typing import NoReturn

from vramwise.errors import SourceError, clipped
from vramwise.formats.safetensors import LARGEST_HEADER_BYTES
from vramwise.sources.kept_parts import KeptParts
from vramwise.sources.web_reader import Page, Refused, WebReader
from vramwise.units import format_bytes

AT_ONCE = 8
LARGEST_PART = LARGEST_HEADER_BYTES + 8
"""The header of a file ends before; nothing behind is ever asked for."""
_PLAIN = re.compile(r"[^\x00-\x1f\\]+")

Refusal = Callable[[Refused, str], SourceError]
"""What a status means for a file (its path), in one line."""


class RemoteRepository:
    """Files of one commit of a repository. Without a `web` only what was kept before is there."""

    at_once = AT_ONCE

    def __init__(
        self, name: str, hub: str, revision: str, sizes: Mapping[str, int | None], *, web: WebReader | None,
        address_of: Callable[[str], str], refusal: Refusal, kept: KeptParts,
    ) -> None:  # fmt: skip
        self.name, self.hub, self.revision = name, hub, revision
        self._sizes = sizes
        self._web, self._address_of, self._refusal, self._kept = web, address_of, refusal, kept
        self._starts: dict[str, bytes] = {}
        self._locks: dict[str, Lock] = {}

    @property
    def origin(self) -> str:
        kept = "" if self._web is not None else ", kept from before"
        return f"{self.hub}, {self.name} at {self.revision[:12]}{kept}"

    def files(self) -> Mapping[str, int | None]:
        return self._sizes

    def size(self, path: str) -> int | None:
        return self._sizes.get(path)

    def read(self, path: str, most_bytes: int) -> bytes:
        size = self.size(path)
        if size is not None and size > most_bytes:
            self._too_large(path, most_bytes)
        content = self.read_range(path, 0, most_bytes + 1 if size is None else size)
        if len(content) > most_bytes:
            self._too_large(path, most_bytes)
        if size is not None and len(content) < size:
            raise SourceError(f"{self._shown(path)}: {len(content):,} of {size:,} bytes came")
        return content

    def read_range(self, path: str, start: int, stop: int) -> bytes:
        """What was read before from the start is not asked for again; it is kept as it grows. Raises SourceError."""
        if path not in self._sizes:
            raise SourceError(f"{self._shown(path)}: there is no such file")
        size = self.size(path)
        stop = stop if size is None else min(stop, size)
        if stop > LARGEST_PART:
            limit = format_bytes(LARGEST_HEADER_BYTES, "MB", 0)
            raise SourceError(f"{self._shown(path)}: its header is larger than {limit}, which is the most that is read")
        with self._locks.setdefault(path, Lock()):
            held = self._starts.get(path)
            if held is None:
                held = self._starts[path] = self._kept.start_of(self.revision, path)
            if stop > len(held) and (size is None or len(held) < size):
                held += self._fetched(path, len(held), stop)
                self._starts[path] = held
                self._kept.keep_start(self.revision, path, held)
        return held[start:stop]

    def _fetched(self, path: str, start: int, stop: int) -> bytes:
        shown = self._shown(path)
        if self._web is None:
            raise SourceError(f"{shown}: was not read before, and nothing is fetched offline")
        try:
            page: Page = self._web.part(self._address_of(path), shown, start, stop)
        except Refused as refused:
            raise self._refusal(refused, path) from None
        return page.content

    def _shown(self, path: str) -> str:
        return f"{self.name}/{clipped(path, 120)}"

    def _too_large(self, path: str, most_bytes: int) -> NoReturn:
        raise SourceError(f"{self._shown(path)}: is larger than {format_bytes(most_bytes, 'MiB', 0)}")


def is_plain_path(path: object) -> bool:
    """Whether a list of files names a path inside the repository."""
    if not isinstance(path, str) or not _PLAIN.fullmatch(path) or len(path) > 1000:
        return False
    return not path.startswith("/") and not {"..", "."} & set(path.split("/"))
