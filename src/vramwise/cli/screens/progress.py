"""A line of progress on standard error: what runs, how far it is, and the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

One = TypeVar("One")
BETWEEN_UPDATES_S = 0.1


def counted(items: Sequence[One], label: str, unit: str) -> Iterator[One]:
    """The items one by one, while a terminal shows how many are done."""
    progress = Progress(label, len(items), unit)
    try:
        for done, item in enumerate(items):
            progress.at(done)
            yield item
    finally:
        progress.end()


class Progress:
    """Rewrites one line on a terminal, and clears it at the end; says nothing elsewhere. `total` 0: nobody knows it."""

    def __init__(self, label: str, total: int, unit: str = "steps") -> None:
        self.label, self.total, self.unit = label, total, unit
        self.started = self.updated = time.monotonic()
        self.shown = sys.stderr.isatty()
        self._show(0)

    def at(self, done: int) -> None:
        """Show that `done` of the steps are over, ten times a second at most."""
        if self.shown and time.monotonic() - self.updated >= BETWEEN_UPDATES_S:
            self._show(done)

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _show(self, done: int) -> None:
        if not self.shown:
            return
        self.updated = time.monotonic()
        left = f", about {self._left(done):.0f} s left" if done and self.total else ""
        of = f" of {self.total:,}" if self.total else ""
        text = f"{self.label}: {done:,}{of} {self.unit}{left}"
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def _left(self, done: int) -> float:
        return (time.monotonic() - self.started) / done * (self.total - done)
