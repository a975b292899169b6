"""The libraries that only a run of a real model needs, imported when it runs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from vramwise.errors import VramwiseError

_EXTRAS = {
    "torch": "torch",
    "transformers": "torch",
    "peft": "torch",
    "accelerate": "torch",
    "pynvml": "gpu",
    "bitsandbytes": "bitsandbytes",
    "diffusers": "diffusers",
    "timm": "timm",
    "sentence_transformers": "sentence-transformers",
}
_REPORTED = ("torch", "transformers", "peft", "accelerate", "bitsandbytes")


class MissingLibraryError(VramwiseError):
    """A library that this run needs is not installed; the message says what installs it."""


def library(name: str) -> Any:
    """The module `name`, imported now. Raises MissingLibraryError with the extra that brings it."""
    need(name.partition(".")[0])
    return import_module(name)


def need(name: str) -> None:
    """Raises MissingLibraryError with the extra that brings a library where it is not installed."""
    if not is_installed(name):
        extra = _EXTRAS[name]
        raise MissingLibraryError(f"this run needs {name}, which is not installed: pip install 'vramwise[{extra}]'")


def is_installed(name: str) -> bool:
    """Whether a library can be imported, without importing it."""
    return find_spec(name) is not None


def versions() -> dict[str, str]:
    """Versions of what ran, and of Python; those that are installed."""
    from importlib.metadata import PackageNotFoundError, version
    from platform import python_version

    found = {"python": python_version()}
    for name in _REPORTED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
