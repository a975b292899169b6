"""The file that a body holds, on the disk for one question, and answers that name it as the person does."""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from vramwise.errors import SourceError, UsageError, VramwiseError, printable
from vramwise.files import may_look_at, shown_path
from vramwise.web.bodies import Body, maybe_text, text_in


@contextmanager
def given_file(body: Body) -> Iterator[str]:
    """The path of the file that a body holds, under its own name in a folder that is gone afterwards.

    Raises UsageError where a body holds none or several, SourceError for a path that may not be looked at.
    """
    given = [key for key in ("text", "base64", "path") if body.get(key) is not None]
    if len(given) != 1:
        raise UsageError("a file: expected one of text, base64 and path")
    if given == ["path"]:
        path = text_in(body, "path")
        if not may_look_at(path):
            raise SourceError(f"{shown_path(path)}: files are read from `vramwise web --allow-files DIR` alone")
        with _said_as_named(os.path.dirname(path) if _is_uploaded(path) else ""):
            yield path
        return
    with tempfile.TemporaryDirectory(prefix="vramwise-") as folder:
        path = os.path.join(folder, _name(body))
        with open(path, "wb") as out:
            out.write(_content(body))
        with _said_as_named(folder):
            yield path


def _is_uploaded(path: str) -> bool:
    """Whether a file stands there for this question alone, as what a server or a page was given."""
    return os.path.realpath(path).startswith(os.path.realpath(tempfile.gettempdir()) + os.sep)


@contextmanager
def _said_as_named(folder: str) -> Iterator[None]:
    try:
        yield
    except VramwiseError as problem:
        if folder:
            problem.args = tuple(_as_named(one, folder) for one in problem.args)
        raise


def _as_named(value: object, folder: str) -> Any:
    """What is said of a file, under the name that a person gave it."""
    if isinstance(value, str):
        return value.replace(folder + os.sep, "") if folder in value else value
    if isinstance(value, Mapping):
        return {key: _as_named(one, folder) for key, one in value.items()}
    return [_as_named(one, folder) for one in value] if isinstance(value, list | tuple) else value


def named(answer: dict[str, Any], path: str, body: Body) -> dict[str, Any]:
    """An answer whose texts name the file as the body does; a path that was allowed stays."""
    if body.get("path") is not None and not _is_uploaded(path):
        return answer
    found: dict[str, Any] = _as_named(answer, os.path.dirname(path))
    return found


def _content(body: Body) -> bytes:
    if body.get("text") is not None:
        return text_in(body, "text").encode("utf-8", "replace")
    try:
        return base64.b64decode(text_in(body, "base64"), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("base64: is none") from None


def _name(body: Body) -> str:
    """The file's own name, without folders and without what no file is called."""
    name = PurePath((maybe_text(body, "name") or "file").replace("\\", "/")).name[-120:]
    kept = "".join(sign if sign.isalnum() or sign in "._- " else "_" for sign in printable(name)).lstrip(".")
    return kept or "file"
