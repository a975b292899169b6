"""From a table of a file, a line or the flags to a checked `Scenario`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from vramwise.errors import ScenarioError
from vramwise.scenario.checks import check
from vramwise.scenario.definition import (
    KINDS,
    TABLES,
    GenerateSettings,
    Scenario,
    ServeSettings,
    Settings,
    TrainSettings,
)
from vramwise.scenario.names import TASKS
from vramwise.scenario.values import Kind, shown, unknown_key

AnySettings = TypeVar("AnySettings", bound=Settings)

_TOP = KINDS[Scenario]
_TOP_KEYS = (*_TOP, *TABLES)


def read_scenario(data: Mapping[str, Any]) -> Scenario:
    """Read and check a scenario. Raises ScenarioError with the path of what is wrong."""
    if not isinstance(data, Mapping):
        raise ScenarioError("", f"expected a table with a model and a task, got {shown(data)}")
    for key in ("model", "task"):
        if data.get(key) is None:
            needed = f"one of {', '.join(TASKS)}" if key == "task" else "a model's name, URL, path or table"
            _refuse_unknown_top_keys(data)
            raise ScenarioError(key, f"is missing: expected {needed}")
    values: dict[str, Any] = {}
    for key, raw in data.items():
        kind = _TOP.get(key)
        if kind is None:
            if key not in TABLES:
                raise _unknown_top_key(key)
        elif raw is not None or not kind.optional:
            values[key] = kind.read(raw, key)
    for name in TABLES:
        if data.get(name) is not None:
            _refuse_other_tasks_table(name, values["task"])
            values[name] = _read_named(name, data[name])
    return check(Scenario(**values, explicit=frozenset(values)))


def _read_named(name: str, raw: object) -> Settings:
    if name == "train":
        return read_table(TrainSettings, raw, name)
    if name == "serve":
        return read_table(ServeSettings, raw, name)
    return read_table(GenerateSettings, raw, name)


def read_table(cls: type[AnySettings], raw: object, path: str) -> AnySettings:
    """Read a task's table. Raises ScenarioError for an unknown key or a value that its kind refuses."""
    if not isinstance(raw, Mapping):
        raise ScenarioError(path, f"expected a table, got {shown(raw)}")
    kinds = KINDS[cls]
    values: dict[str, Any] = {}
    for key, value in raw.items():
        kind = kinds.get(key)
        if kind is None:
            raise _unknown_table_key(key, path, kinds)
        if value is not None or not kind.optional:
            values[key] = kind.read(value, f"{path}.{key}")
    return cls(**values, explicit=frozenset(values))


def _refuse_other_tasks_table(name: str, task: str) -> None:
    if name != task and not (name == "serve" and task == "load"):
        tasks = "serve or load" if name == "serve" else name
        raise ScenarioError(name, f"this table belongs to the task {tasks}, but the task is {task}")


def _refuse_unknown_top_keys(data: Mapping[str, Any]) -> None:
    for key in data:
        if key not in _TOP_KEYS:
            raise _unknown_top_key(key)


def _unknown_top_key(key: object) -> ScenarioError:
    homes = [name for name, cls in TABLES.items() if key in KINDS[cls]]
    if homes:
        return ScenarioError(str(key), f"belongs into the table of the task: {homes[0]}.{key}")
    return unknown_key("", key, _TOP_KEYS)


def _unknown_table_key(key: object, path: str, kinds: Mapping[str, Kind]) -> ScenarioError:
    if key in _TOP:
        return ScenarioError(f"{path}.{key}", f"belongs to the top of the scenario: {key}")
    elsewhere = [name for name, cls in TABLES.items() if key in KINDS[cls]]
    if elsewhere:
        return ScenarioError(f"{path}.{key}", f"belongs to the task {elsewhere[0]}, not to {path}")
    return unknown_key(path, key, kinds)
