"""From a table of a file, a line or the flags to a checked `Scenario`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from vramwise.errors import ScenarioError
from vramwise.scenario.messages import shown, unknown_key
from vramwise.scenario.names import TASKS
from vramwise.scenario.nested import called, check_programs, flattened, nested_tables
from vramwise.scenario.settings import Settings, kinds_of

AnySettings = TypeVar("AnySettings", bound=Settings)
Tables = Mapping[str, type[Settings]]


def read_scenario(data: Mapping[str, object], top: type[Settings], tables: Tables) -> dict[str, Any]:
    """The values of a scenario: of its own keys (`top`), and the tables of its tasks.

    Raises ScenarioError with the path of what is wrong.
    """
    if not isinstance(data, Mapping):
        raise ScenarioError("", f"expected a table with a model and a task, got {shown(data)}")
    kinds = kinds_of(top)
    for key in ("model", "task"):
        if data.get(key) is None:
            needed = f"one of {', '.join(TASKS)}" if key == "task" else "a model's name, URL, path or table"
            _refuse_unknown_top_keys(data, top, tables)
            raise ScenarioError(key, f"is missing: expected {needed}")
    values: dict[str, Any] = {}
    for key, raw in data.items():
        kind = kinds.get(key)
        if kind is None:
            if key not in tables:
                raise _unknown_top_key(key, top, tables)
        elif raw is not None or not kind.optional:
            values[key] = kind.read(raw, key)
    for name, cls in tables.items():
        if data.get(name) is not None:
            _refuse_other_tasks_table(name, values["task"])
            values[name] = _read_table(cls, data[name], name, top, tables)
    return values


def _read_table(cls: type[AnySettings], raw: object, path: str, top: type[Settings], tables: Tables) -> AnySettings:
    """Read a task's table. Raises ScenarioError for an unknown key or a value that its kind refuses."""
    if not isinstance(raw, Mapping):
        raise ScenarioError(path, f"expected a table, got {shown(raw)}")
    kinds = kinds_of(cls)
    values: dict[str, Any] = {}
    for key, value, where in flattened(cls, raw, path):
        kind = kinds.get(key)
        if kind is None:
            raise _unknown_table_key(key, path, top, tables)
        if value is not None or not kind.optional:
            values[key] = kind.read(value, where)
    settings = cls(**values, explicit=frozenset(values))
    check_programs(settings, raw, path)
    return settings


def _refuse_other_tasks_table(name: str, task: str) -> None:
    if name != task and not (name == "serve" and task == "load"):
        tasks = "serve or load" if name == "serve" else name
        raise ScenarioError(name, f"this table belongs to the task {tasks}, but the task is {task}")


def _refuse_unknown_top_keys(data: Mapping[str, object], top: type[Settings], tables: Tables) -> None:
    for key in data:
        if key not in kinds_of(top) and key not in tables:
            raise _unknown_top_key(key, top, tables)


def _unknown_top_key(key: object, top: type[Settings], tables: Tables) -> ScenarioError:
    homes = [name for name, cls in tables.items() if key in kinds_of(cls)]
    if homes:
        return ScenarioError(str(key), f"belongs into the table of the task: {homes[0]}.{key}")
    return unknown_key("", key, (*kinds_of(top), *tables))


def _unknown_table_key(key: str, path: str, top: type[Settings], tables: Tables) -> ScenarioError:
    if key in kinds_of(top):
        return ScenarioError(f"{path}.{key}", f"belongs to the top of the scenario: {key}")
    home = next((name for name, cls in tables.items() if key in kinds_of(cls)), None)
    if home is not None:
        here = called(key, path)
        hint = f": here it is {here}" if here is not None else ""
        return ScenarioError(f"{path}.{key}", f"belongs to the task {home}, not to {path}{hint}")
    return unknown_key(path, key, (*kinds_of(tables[path]), *nested_tables(tables[path])))
