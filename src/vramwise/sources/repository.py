"""Where a model's files lie: a folder on disk, a cache of a hub, or a hub itself, all read the same way."""

from __future__ import annotations

import os
from typing import Protocol

from vramwise.formats.ranged import LocalFiles, RangedFiles


class Repository(RangedFiles, Protocol):
    """A model's files, with a sentence's worth of where they come from.

    `revision` is the commit they belong to where one is known, else empty.
    """

    @property
    def origin(self) -> str: ...
    @property
    def revision(self) -> str: ...


class Folder(LocalFiles):
    """A folder on disk; `origin` and `revision` are told by whoever knows more than its path."""

    def __init__(self, path: str, *, origin: str | None = None, revision: str = "") -> None:
        super().__init__(os.fspath(path))
        self.origin = origin or self.folder
        self.revision = revision


class Beginning(Folder):
    """A folder with the beginning of one file, whose whole size somebody tells: enough for a header."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.told_size = size

    def size(self, path: str) -> int | None:
        held = super().size(path)
        return held if held is None else max(held, self.told_size)
