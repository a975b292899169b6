"""The command line: one module a command, imported when that command runs."""

from __future__ import annotations


def flag(key: str) -> str:
    """The flag of a scenario's key."""
    return "--" + key.replace("_", "-")
