"""The tape with all its operations."""

from __future__ import annotations

from vramwise.models.autograd.experts import Experts


class Tape(Experts):
    """Records one forward pass; `saved` is the set of storages that backward needs."""
