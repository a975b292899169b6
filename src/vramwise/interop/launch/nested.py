"""Nested configurations by dotted names, as Hydra, OmegaConf and TOML-based trainers have them.

`key=value` words win over the file, whatever `+` or `++` stand before them. `${a.b}`, `${.b}` beside the key,
`${oc.select:a.b,default}`, `${mul:a,b}` and `${div:a,b}` are filled in from the same configuration; all else stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vramwise.errors import clipped
from vramwise.interop.beside import file_table
from vramwise.interop.launch.options import Options, flattened

_REFERENCE = re.compile(r"\$\{([^${}]{1,300})\}")
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./-]*)=(.*)", re.S)
_ROUNDS = 10
_PARENTS = 10
_FILES = (".yaml", ".yml", ".json", ".toml")


def read_nested(options: Options, words: Sequence[str], files: Sequence[str]) -> list[str]:
    """Take `key=value` words, then the files' entries; files that a file builds on (`defaults`) come last.

    Returns what could not be read, as notes. Raises SourceError for a file of the command that is not there.
    """
    notes: list[str] = []
    given: dict[str, object] = {}
    loose = []
    for word in words:
        match = _OVERRIDE.fullmatch(word)
        if match is None:
            loose.append(word)
        else:
            given.setdefault(match.group(1), _plain(match.group(2)))
    options.loose += loose
    for file in files:
        for key, value in flattened(_with_parents(file, notes)):
            given.setdefault(key, value)
    resolved = {key: _resolved(key, value, given) for key, value in given.items()}
    options.read_table({key: value for key, value in resolved.items() if value is not None})
    return notes


def _plain(text: str) -> object:
    """A value as Hydra reads it: a list in brackets, text without its quotes, `null` nothing."""
    text = text.strip().strip("'\"")
    if text.startswith("[") and text.endswith("]"):
        return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]
    return None if text.lower() in ("null", "none", "") else text


def _with_parents(file: str, notes: list[str]) -> dict[str, object]:
    """A file's table over that of the files which it names in `defaults`, where these are beside it."""
    found: dict[str, object] = {}
    waiting, seen = [file], 0
    while waiting and seen < _PARENTS:
        path = waiting.pop(0)
        seen += 1
        table = file_table(path)
        parents = table.pop("defaults", None)
        found = _merged(table, found)
        for parent in parents if isinstance(parents, list) else [parents]:
            if not isinstance(parent, str) or parent == "_self_":
                continue
            beside = Path(path).parent / (parent if parent.endswith(_FILES) else f"{parent}.yaml")
            if beside.is_file():
                waiting.append(str(beside))
            else:
                notes.append(f"it builds on {clipped(parent)}, which is not here: what that sets is not known")
    return found


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        if isinstance(value, Mapping) and isinstance(under, Mapping):
            merged[key] = _merged(under, value)
        else:
            merged[key] = value
    return merged


def _resolved(key: str, value: object, table: Mapping[str, object]) -> object:
    if not isinstance(value, str) or "${" not in value:
        return value
    text = value
    for _ in range(_ROUNDS):
        match = _REFERENCE.fullmatch(text)
        if match is not None:
            whole = _looked_up(key, match.group(1), table)
            if not isinstance(whole, str) or "${" not in whole:
                return whole
            text = whole
            continue
        replaced = _REFERENCE.sub(lambda found: _as_text(_looked_up(key, found.group(1), table), found.group()), text)
        if replaced == text or len(replaced) > 10_000:
            break
        text = replaced
    return text


def _as_text(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)


def _looked_up(key: str, reference: str, table: Mapping[str, object]) -> object:
    resolver, colon, arguments = reference.partition(":")
    if not colon:
        name = reference.strip()
        if name.startswith("."):
            name = f"{key.rpartition('.')[0]}.{name.lstrip('.')}"
        return table.get(name)
    parts = [part.strip() for part in arguments.split(",")]
    if resolver == "oc.select":
        found = _looked_up(key, parts[0], table)
        return found if found is not None or len(parts) == 1 else _plain(parts[1])
    if resolver in ("mul", "div") and len(parts) == 2 and all(part.isdecimal() and len(part) < 10 for part in parts):
        left, right = int(parts[0]), int(parts[1])
        return left * right if resolver == "mul" else left // right if right else None
    return f"${{{reference}}}".replace("$", "")
