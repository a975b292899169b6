"""Variables that a Compose file is filled in from: the shell's environment, then `.env` beside the file.

Read in docker/docs content/manuals/compose/how-tos/environment-variables (precedence, `.env`, `env_file`). The
environment is this machine's own: a server that answers other people's questions gives none of it away.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from vramwise.errors import VramwiseError
from vramwise.files import is_there, may_look_anywhere
from vramwise.scenario.files import read_text_file

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*[=:]\s*(.*?)\s*")
_MOST_LINES = 10_000
_MOST_FILES = 20


def variables_for(path: str) -> dict[str, str]:
    """What `${NAME}` means in the Compose file at `path`."""
    found = variables_in(str(Path(path).parent / ".env"))
    return found | dict(os.environ) if may_look_anywhere() else found


def variables_in(path: str) -> dict[str, str]:
    """The `NAME=value` lines of a file; none of one that is not there, cannot be read or may not be looked at."""
    if not is_there(path):
        return {}
    try:
        return variables_of(read_text_file(path))
    except VramwiseError:
        return {}


def variables_of(text: str) -> dict[str, str]:
    """The `NAME=value` lines of a text."""
    lines = text.splitlines()[:_MOST_LINES]
    matches = (_LINE.fullmatch(line) for line in lines if not line.lstrip().startswith("#"))
    return {match[1]: _value(match[2]) for match in matches if match}


def of_service(service: Mapping[str, object], path: str) -> dict[str, str]:
    """What a service's `env_file` sets in its container."""
    given = service.get("env_file")
    entries = given if isinstance(given, list) else [given]
    names = [entry.get("path") if isinstance(entry, Mapping) else entry for entry in entries[:_MOST_FILES]]
    found: dict[str, str] = {}
    for name in names:
        if isinstance(name, str) and name:
            found |= variables_in(str(Path(path).parent / name))
    return found


def _value(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return re.split(r"\s+#", text, maxsplit=1)[0]
