"""A line of progress on standard error: what runs, how far it is, and the time that is left."""

from __future__ import annotations

import sys
import time


class Progress:
    """Rewrites one line on a terminal; says nothing elsewhere."""

    def __init__(self, label: str, total: int) -> None:
        self.label, self.total = label, total
        self.started = time.monotonic()
        self.shown = sys.stderr.isatty()
        self.at(0)

    def at(self, done: int) -> None:
        """Show that `done` of the steps are over."""
        if not self.shown:
            return
        left = f", about {self._left(done):.0f} s left" if done else ", loading"
        print(f"\r\x1b[K{self.label}: {done} of {self.total} steps{left}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _left(self, done: int) -> float:
        return (time.monotonic() - self.started) / done * (self.total - done)
