"""Scenario files: TOML, YAML and JSON, read safely. Whatever is wrong with a file is said in one line.

JSON Lines, read with bounded memory: numbered lines, each parsed by itself.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from vramwise.errors import ScenarioError, SourceError, clipped
from vramwise.files import read_at_most, shown_path
from vramwise.scenario.definition import Scenario
from vramwise.scenario.values import shown
from vramwise.units import MIB, format_bytes

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_LINE_BYTES = 16 * MIB
"""A longer line is passed over without being held in memory."""


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Every line that is not blank with its number from 1; None stands for a line that is too long."""
    number = 0
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(line) <= LONGEST_LINE_BYTES:
            if not line.isspace():
                yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MIB)
        yield number, None


def parse_line(line: bytes | None) -> dict[str, object]:
    """The JSON object of one line. Raises ScenarioError, in words, for anything else."""
    if line is None:
        raise ScenarioError("", f"the line is longer than {format_bytes(LONGEST_LINE_BYTES, 'MiB', 0)}")
    try:
        value = parse_json(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ScenarioError("", "not text (UTF-8)") from None
    except RecursionError:
        raise ScenarioError("", "nested too deeply") from None
    except ValueError as problem:
        raise ScenarioError("", str(problem)) from None
    if not isinstance(value, dict):
        raise ScenarioError("", f"expected a JSON object, got {shown(value)}")
    return value


LARGEST_FILE_BYTES = 16 * MIB
MOST_VALUES = 200_000
"""More values than any scenario has; bounds the work on a file whose aliases multiply."""

DEEPEST = 100
_TOO_DEEP, _TOO_MANY = "nested too deeply", f"more than {MOST_VALUES:,} values"
_PLACE_IN_YAML = re.compile(r' in "<[a-z ]+>", (line \d+, column \d+)')
_PART_OF_A_KEY = re.compile(r"[\w\-\"' \t]*")


def read_scenario_file(path: str | Path) -> Scenario:
    """Read a scenario from a `.toml`, `.yaml`, `.yml` or `.json` file.

    Raises SourceError when the file cannot be read or parsed, ScenarioError when its content is wrong.
    """
    return Scenario.from_dict(read_table_file(path))


def read_table_file(path: str | Path, *, any_name: bool = False) -> dict[str, object]:
    """The table that a TOML, YAML or JSON file holds; with `any_name` a file of another ending is JSON or YAML.

    Raises SourceError, or ScenarioError for no table.
    """
    where = shown_path(str(path))
    parse = _PARSERS.get(os.path.splitext(path)[1].lower(), _parse_either if any_name else None)
    if parse is None:
        raise SourceError(f"{where}: expected a file that ends in {', '.join(_PARSERS)}")
    table = _parsed(read_text_file(path), parse, where)
    if not isinstance(table, dict):
        raise ScenarioError("", f"{where}: expected a table with a model and a task")
    return table


def parse_documents(text: str, name: str) -> list[object]:
    """The documents of a YAML text, such as the manifests of one file. Raises SourceError that names it."""
    found = _parsed(text, _parse_yaml_stream, shown_path(name))
    return list(found)


def _parsed(text: str, parse: Callable[[str], Any], where: str) -> Any:
    if not text.strip():
        raise SourceError(f"{where}: the file is empty")
    try:
        found = parse(text)
        _check_tree(found)
    except RecursionError:
        raise SourceError(f"{where}: {_TOO_DEEP}") from None
    except ValueError as problem:
        raise SourceError(f"{where}: {clipped(str(problem), 160)}") from None
    return found


def parse_json(text: str) -> Any:
    """JSON without NaN; Infinity is read, because published config.json files hold it.

    Raises ValueError with one line of what is wrong and where, or RecursionError.
    """
    try:
        return json.loads(text, parse_constant=_read_constant)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}" if "\n" in text else f"column {problem.colno}"
        raise ValueError(f"not JSON: {problem.msg} ({where})") from None


def read_text_file(path: str | Path) -> str:
    """A file's text, of at most 16 MiB. Raises SourceError that names it."""
    where = shown_path(str(path))
    content = read_at_most(path, LARGEST_FILE_BYTES + 1)
    if len(content) > LARGEST_FILE_BYTES:
        limit = format_bytes(LARGEST_FILE_BYTES, "MiB", 0)
        raise SourceError(f"{where}: larger than {limit}, which is no scenario")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{where}: not a text file (UTF-8)") from None
    if "\0" in text:
        raise SourceError(f"{where}: not a text file (it holds zero bytes)")
    return text


def _parse_toml(text: str) -> object:
    import tomllib

    _check_dotted_keys(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"not TOML: {problem}") from None


def _parse_yaml(text: str) -> object:
    import yaml

    return _built(text, yaml.load)


def _parse_yaml_stream(text: str) -> object:
    import yaml

    return _built(text, lambda given, Loader: list(yaml.load_all(given, Loader=Loader)))


def _built(text: str, build: Callable[..., object]) -> object:
    """What YAML builds of a text that was looked at event by event before."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml.parse(text, Loader=loader))
        return build(text, Loader=loader)
    except yaml.YAMLError as problem:
        if "{{" in text:
            raise ValueError(
                "not YAML but a template, with double braces: give it filled in, as helm template does"
            ) from None
        said = _PLACE_IN_YAML.sub(r" (\1)", " ".join(str(problem).split()))
        raise ValueError(f"not YAML: {said}") from None


def _check_events(events: Iterable[object]) -> None:
    """Refuse YAML that no scenario is before it is built: libyaml's builder calls itself at every level."""
    import yaml

    depth = 0
    for count, event in enumerate(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise ValueError(_TOO_DEEP)
        if count > 2 * MOST_VALUES:  # a mapping's keys are events too
            raise ValueError(_TOO_MANY)


def _check_dotted_keys(text: str) -> None:
    """Refuse TOML keys of very many parts: tomllib's work grows with the square of their number."""
    for line in text.splitlines():
        parts = 0
        for piece in line.split(".") if line.count(".") > DEEPEST else ():
            parts = parts + 1 if _PART_OF_A_KEY.fullmatch(piece) else 0
            if parts > DEEPEST:
                raise ValueError(_TOO_DEEP)


def _read_constant(name: str) -> float:
    if name == "NaN":
        raise ValueError("NaN is not a number to work with")
    return float(name)


def _parse_either(text: str) -> object:
    return parse_json(text) if text.lstrip().startswith("{") else _parse_yaml(text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    ".toml": _parse_toml,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
    ".json": parse_json,
}


def _check_tree(table: object) -> None:
    """Refuse what no scenario holds: too many values, too deep a nesting, NaN."""
    level, values, depth = [table], 0, 0
    while level:
        values += len(level)
        depth += 1
        if values > MOST_VALUES or depth > DEEPEST:
            raise ValueError(_TOO_DEEP if depth > DEEPEST else _TOO_MANY)
        below: list[object] = []
        for value in level:
            if isinstance(value, float) and math.isnan(value):
                raise ValueError("NaN is not a number to work with")
            if isinstance(value, Mapping):
                below += value.values()
            elif isinstance(value, list):
                below += value
            if len(below) > MOST_VALUES:
                break
        level = below
