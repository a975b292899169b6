"""Measured cases: one JSON object a line, each a scenario and what a counter showed when somebody ran it.

A file is read line by line and never fails as a whole: a line that is no case becomes an `UnusableLine`
with its number and one reason, and the reading goes on.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeGuard

from vramwise.errors import ScenarioError, SourceError, UnknownNameError, UsageError, clipped, nearest
from vramwise.files import open_to_read, shown_path
from vramwise.plugins import installed, plugin_named
from vramwise.records import record
from vramwise.scenario.definition import TABLES
from vramwise.scenario.files import numbered_lines, parse_line

HOPELESS_LINES = 1000
"""A file whose first lines are all unusable is no case file; reading stops here."""

SCHEMA = 1  # of a case; a line that names none has it
FIELDS = frozenset(
    {"id", "scenario", "measured", "precision_bytes", "precision", "source", "quote", "confidence"}
    | {"specified", "unstated", "closed_budget", "rig", "rig_floor_bytes", "engine_version", "extra", "notes"}
)
"""Keys of a case; any other key is somebody's own and is passed over."""

CONFIDENCES = ("high", "medium", "low")
SPECIFIED = ("full", "most", "poor")
NOT_STATED = "not stated"
OF_PLUGIN = "plugin:"
"""What stands before the name of a plug-in whose cases are meant, in place of a path."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@record
class Case:
    """One measured case; the fields are those of the file, `file` and `line` say where it stands.

    `measured` maps a quantity to what was measured: bytes or counts, a boolean for `oom`.
    `rounding` maps a quantity to half a unit of its last printed digit (bytes for a quantity in bytes).
    `rig_floor_bytes` is what the harness held on the GPU beside the program that the scenario describes.
    """

    id: str
    scenario: Mapping[str, object]
    measured: Mapping[str, int | float | bool]
    rounding: Mapping[str, int | float] = field(default_factory=dict)
    source: str = ""
    quote: str = ""
    confidence: str = ""
    specified: str = ""
    unstated: tuple[str, ...] = ()
    closed_budget: bool = False
    rig: str = ""
    rig_floor_bytes: int = 0
    engine_version: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    file: str = ""
    line: int = 0

    @property
    def engine(self) -> str:
        """`serve.engine`, `generate.engine` or `train.framework`, or its default."""
        task = self.scenario.get("task")
        name = "serve" if task == "load" else task
        settings = TABLES.get(name) if isinstance(name, str) else None
        table = self.scenario.get(str(name), None if task == "load" else {})
        if settings is None or not isinstance(table, Mapping):
            return NOT_STATED
        key = "framework" if task == "train" else "engine"
        return str(table.get(key) or getattr(settings(), key))

    @property
    def source_name(self) -> str:
        """What cases of one origin share: the repository that begins the source, else its text up to "("."""
        repository = _REPOSITORY.match(self.source)
        if repository:
            return repository.group()
        return re.split(r"[(;]", self.source, maxsplit=1)[0].strip() or NOT_STATED


@record
class UnusableLine:
    """A line of a case file that is no case, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file} line {self.line}: {self.reason}"


class _NotACase(Exception):
    """Why a line is no case (becomes an `UnusableLine`)."""


def case_files(paths: Iterable[str | Path]) -> list[Path]:
    """The case files that `paths` name: a file is itself, a folder its `*.jsonl` in order; each file once.

    `plugin:NAME` are those that a plug-in brings. Raises SourceError for a path that does not exist, UsageError for a
    folder without case files, UnknownNameError for a plug-in that is not installed.
    """
    files: dict[Path, Path] = {}
    for given in paths:
        if str(given).startswith(OF_PLUGIN):
            files.update((file.resolve(), file) for file in _cases_of_plugin(str(given)))
            continue
        path, where = Path(given), shown_path(str(given))
        try:
            if path.is_dir():
                found = sorted(path.glob("*.jsonl"))
                if not found:
                    raise UsageError(f"{where}: no .jsonl file in this folder; give a file of measured cases")
            elif path.exists():
                found = [path]
            else:
                raise SourceError(f"{where}: no such file or folder")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SourceError(f"{where}: cannot be read ({reason})") from None
        for file in found:
            files.setdefault(file.resolve(), file)
    return list(files.values())


def _cases_of_plugin(given: str) -> tuple[Path, ...]:
    name = given.removeprefix(OF_PLUGIN)
    plugin = plugin_named(name)
    if plugin is None:
        raise UnknownNameError(
            "plug-in", name, nearest(name, [one.name for one in installed()]), "vramwise --version lists them"
        )
    if not plugin.cases:
        raise SourceError(f"plug-in {name} brings no measured cases")
    return plugin.cases


def read_cases(path: str | Path) -> Iterator[Case | UnusableLine]:
    """The cases of one file in order, an `UnusableLine` for each line that is none; blank lines do not count.

    Raises SourceError where the file cannot be opened or read.
    """
    name = str(path)
    lines_of_ids: dict[str, int] = {}
    usable = False
    try:
        with open_to_read(path) as stream:
            for number, raw in numbered_lines(stream):
                try:
                    case = _case(_parse(raw), name, number)
                    first = lines_of_ids.setdefault(case.id, number)
                    if first != number:
                        raise _NotACase(f'id "{case.id}" was used in line {first} already')
                except _NotACase as error:
                    yield UnusableLine(name, number, str(error))
                else:
                    usable = True
                    yield case
                if number >= HOPELESS_LINES and not usable:
                    yield UnusableLine(
                        name,
                        number,
                        f"none of the first {HOPELESS_LINES:,} lines is a case, the rest was not read",
                    )
                    return
    except OSError as error:
        raise SourceError(f"{shown_path(name)}: cannot be read ({error.strerror or error})") from None


def _parse(raw: bytes | None) -> dict[str, object]:
    try:
        return parse_line(raw and raw.rstrip())
    except ScenarioError as error:
        raise _NotACase(clipped(error.problem, 100)) from None


def _case(raw: dict[str, object], file: str, line: int) -> Case:
    for key in raw:  # a key of somebody's own is fine, a misspelled one is not
        near = key not in FIELDS and difflib.get_close_matches(key, FIELDS - raw.keys(), n=1, cutoff=0.85)
        if near:
            raise _NotACase(f'unknown key "{clipped(key)}"; did you mean {near[0]}?')
    if raw.get("schema", SCHEMA) != SCHEMA:
        given = clipped(str(raw["schema"]), 20)
        raise _NotACase(f'"schema" is {given}, and this version reads {SCHEMA}: record the case again, or upgrade')
    for key in ("id", "scenario", "measured"):
        if key not in raw:
            raise _NotACase(f'"{key}" is missing')
    measured = _measured(raw["measured"])
    rounding = {
        quantity: amount
        for key in ("precision_bytes", "precision")
        for quantity, amount in _rounding(key, raw.get(key, {}), measured).items()
    }
    return Case(
        id=_filled_text("id", raw["id"]),
        scenario=_table("scenario", raw["scenario"]),
        measured=measured,
        rounding=rounding,
        source=_text("source", raw.get("source", "")),
        quote=_text("quote", raw.get("quote", "")),
        confidence=_choice("confidence", raw.get("confidence", ""), CONFIDENCES),
        specified=_choice("specified", raw.get("specified", ""), SPECIFIED),
        unstated=_texts("unstated", raw.get("unstated", [])),
        closed_budget=_boolean("closed_budget", raw.get("closed_budget", False)),
        rig=_text("rig", raw.get("rig", "")),
        rig_floor_bytes=_whole("rig_floor_bytes", raw.get("rig_floor_bytes", 0)),
        engine_version=_text("engine_version", raw.get("engine_version", "")),
        extra=_table("extra", raw.get("extra", {})),
        notes=_texts("notes", raw.get("notes", [])),
        file=file,
        line=line,
    )


def _measured(value: object) -> dict[str, int | float | bool]:
    table = _table("measured", value)
    if not table:
        raise _NotACase("measured: expected at least one quantity, got an empty table")
    read: dict[str, int | float | bool] = {}
    for name, amount in table.items():
        if name == "oom":
            read[name] = _boolean("measured.oom", amount)
        elif _is_number(amount):  # below 0 is possible: vLLM prints what its KV cache lacks
            read[name] = amount
        else:
            raise _NotACase(f"measured.{name}: expected a number, got {_kind(amount)}")
    return read


def _rounding(key: str, value: object, measured: Mapping[str, object]) -> dict[str, int | float]:
    read: dict[str, int | float] = {}
    for name, amount in _table(key, value).items():
        if not _is_number(amount) or amount < 0:
            raise _NotACase(f"{key}.{name}: expected a number ≥ 0, got {_kind(amount)}")
        read[name] = amount
    return {name: amount for name, amount in read.items() if name in measured}


def _table(key: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _NotACase(f"{key}: expected a table, got {_kind(value)}")
    return value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float, and beyond every memory
        return False


def _whole(key: str, value: object) -> int:
    if not _is_number(value) or not isinstance(value, int) or value < 0:
        raise _NotACase(f"{key}: expected a whole number ≥ 0, got {_kind(value)}")
    return value


def _boolean(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _NotACase(f"{key}: expected true or false, got {_kind(value)}")
    return value


def _text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _NotACase(f"{key}: expected text, got {_kind(value)}")
    return value


def _filled_text(key: str, value: object) -> str:
    if not _text(key, value).strip():
        raise _NotACase(f"{key}: expected text, got an empty one")
    return str(value)


def _texts(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list):
        raise _NotACase(f"{key}: expected text or a list of texts, got {_kind(value)}")
    return tuple(_text(key, item) for item in value)


def _choice(key: str, value: object, choices: tuple[str, ...]) -> str:
    if value != "" and value not in choices:
        raise _NotACase(f"{key}: expected {', '.join(choices)}; got {_kind(value)}")
    return str(value)


def _kind(value: object) -> str:
    """What was given, short enough for one line."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f'"{clipped(value)}"'
    return "a number beyond every memory" if isinstance(value, int) and not _is_finite(value) else str(value)
