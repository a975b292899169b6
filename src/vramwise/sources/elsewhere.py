"""A model's path on another machine, as logs and command lines name it: which known model lies there."""

from __future__ import annotations

import re

from vramwise.errors import SourceError
from vramwise.files import shown_path
from vramwise.sources.resolve import resolve

_HUB_FOLDER = re.compile(r"models--([^/\\]+?)--([^/\\]+)")
_SEPARATORS = re.compile(r"[/\\]+")
_DOT = "___"  # ModelScope's downloads write it for a point: Qwen2___5-3B


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
    return _is_path(path) and not _known(path)


def known_in_path(path: str) -> str | None:
    """The known model that the last part of another machine's path names."""
    name = _name_in(path)
    return name if name is not None and _known(name) else None


def _name_in(path: str) -> str | None:
    cached = _HUB_FOLDER.search(path)
    if cached is not None:
        return f"{cached[1]}/{cached[2]}"
    pieces = [piece for piece in _SEPARATORS.split(path) if piece]
    if not pieces or not _is_path(path):
        return None
    organisation, joined, name = pieces[-1].partition("--")  # meta-llama--Llama-3.1-8B
    return f"{organisation}/{name}" if joined else pieces[-1].replace(_DOT, ".")


def _is_path(path: str) -> bool:
    """`$HOME/models/…` of a script is one too."""
    from vramwise.sources.reference import STORE

    several = len([piece for piece in _SEPARATORS.split(path) if piece]) > 2
    return several or path.startswith(("/", ".", "~", "$")) or "\\" in path or STORE.match(path) is not None


def _known(name: str) -> bool:
    try:
        return not resolve(name, network=False).others
    except SourceError:
        return False
