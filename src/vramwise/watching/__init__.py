"""Estimated against actual during a user's own training: `vramwise.watch()` and callbacks of Trainer and Lightning."""

from vramwise.watching.watch import Watch, watch

__all__ = ["Watch", "watch"]
