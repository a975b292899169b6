"""Units of systemd: the commands of `ExecStart=` with the variables of `Environment=`. Nothing is run.

Read in systemd 258 man/systemd.syntax.xml (continued lines, comments within them), systemd.service.xml (prefixes of
commands, an empty `ExecStart=` forgets those before it), systemd.exec.xml (Environment=, EnvironmentFile=,
UnsetEnvironment=, which is applied last) and systemd.unit.xml (specifiers).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from vramwise.errors import clipped
from vramwise.interop.files.programs import Program, programs_in_text

_SECTION = re.compile(r"(?m)^[ \t]*\[Service\][ \t]*\r?$")
_STARTS = re.compile(r"(?m)^[ \t]*ExecStart[ \t]*=")
_PREFIXES = "@-:+!|"
_MOST_LINES = 10_000
_SPECIFIER = re.compile(r"%.")
_INSTANCE = "instance_of_the_unit"


def is_unit(text: str) -> bool:
    """Whether a text is a unit that starts something."""
    return _SECTION.search(text) is not None and _STARTS.search(text) is not None


def unit_programs(text: str, name: str) -> list[Program]:
    """The known programs that a unit starts; what its EnvironmentFile sets is not looked at, and said."""
    commands: list[str] = []
    environment: dict[str, str] = {}
    files: list[str] = []
    unset: list[str] = []
    instance = name.partition("@")[2]
    for key, raw in _settings(text):
        value = _specified(raw, instance)
        if key == "ExecStart":
            commands = [*commands, _command(value)] if value else []
        elif key == "Environment":
            environment = environment | dict(_assignments(value)) if value else {}
        elif key == "UnsetEnvironment":
            unset = [*unset, *_words(value)] if value else []
        elif key == "EnvironmentFile" and value:
            files.append(value.removeprefix("-"))
    kept = {key: value for key, value in environment.items() if not {key, f"{key}={value}"} & set(unset)}
    found = programs_in_text("\n".join(commands), kept, name)
    shown = ", ".join(clipped(one, 80) for one in files[:8])
    more = [f"EnvironmentFile is not read: {shown} may set more"] if files else []
    return [replace(one, notes=(*(_said(note) for note in one.notes), *more)) for one in found]


def _specified(value: str, instance: str) -> str:
    """`%i` and `%I` as what stands behind `@` in the unit's name; of a template's, which has nothing there, what only
    its start tells. The others (`%h`, `%t`) are paths of the machine, and stay."""
    known = {"%%": "%", **dict.fromkeys(("%i", "%I"), instance or f"${{{_INSTANCE}}}")}
    return _SPECIFIER.sub(lambda found: known.get(found[0], found[0]), value)


def _said(note: str) -> str:
    """A note that names a template's instance as the unit does."""
    if _INSTANCE not in note:
        return note
    return (
        note.replace(f"${{{_INSTANCE}}}", "%i").replace(f"${_INSTANCE}", "%i") + " (stands behind @ in the unit's name)"
    )


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """`Key=value` of the section [Service], continued lines joined."""
    inside, joined = False, ""
    for line in text.splitlines()[:_MOST_LINES]:
        bare = line.strip()
        if bare.startswith(("#", ";")):
            continue
        if bare.endswith("\\"):
            joined += bare[:-1] + " "
            continue
        whole, joined = joined + bare, ""
        if whole.startswith("["):
            inside = whole == "[Service]"
        elif inside and "=" in whole:
            key, _, value = whole.partition("=")
            yield key.strip(), value.strip()


def _command(value: str) -> str:
    """A command without the signs before it; `@` has the program's own name for itself (argv[0]) as second word."""
    bare = value.lstrip(_PREFIXES)
    if "@" not in value[: len(value) - len(bare)]:
        return bare
    words = bare.split(None, 2)
    return " ".join([*words[:1], *words[2:]])


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """`A=1 "B=two words" 'C=3'`."""
    for word in _words(text):
        name, sign, value = word.partition("=")
        if sign and name.isidentifier():
            yield name, value


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
