"""A model's path on another machine, as logs and command lines name it: which known model lies there."""

from __future__ import annotations

from vramwise.errors import SourceError
from vramwise.files import shown_path
from vramwise.sources.reference import is_path, name_in_path
from vramwise.sources.resolve import resolve


def model_elsewhere(path: str) -> tuple[str, str] | None:
    """The known model that the last part of a path names, and a sentence that says so; None where `path` can be
    read here, is no path, or names no known model.

    A folder of the Hugging Face cache (`models--Qwen--Qwen3-8B/snapshots/…`) names its repository.
    """
    name = known_in_path(path)
    if name is None or _known(path):
        return None
    return name, f"{shown_path(path)} is not on this machine: taken as {name}"


def is_elsewhere(path: str) -> bool:
    """Whether it is a path that leads nowhere on this machine."""
    return is_path(path) and not _known(path)


def known_in_path(path: str) -> str | None:
    """The known model that the last part of another machine's path names."""
    name = name_in_path(path)
    return name if name is not None and _known(name) else None


def _known(name: str) -> bool:
    try:
        return not resolve(name, network=False).others
    except SourceError:
        return False
