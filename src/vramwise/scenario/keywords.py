"""A scenario from keywords: `estimate("llama-3.1-8b", task="serve", gpu="l40s", max_model_len=8192)`.

Keys of the top stay there, those of the task's table go into it, and a table (`serve={...}`) is taken as it is; the
command line's flags say the same with dashes.
"""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.errors import ScenarioError
from vramwise.scenario.definition import KINDS, TABLES, Scenario, table_of
from vramwise.scenario.names import TASKS
from vramwise.scenario.nested import called, flat, nested_tables
from vramwise.scenario.values import shown, unknown_key


def scenario_of(model: str | Mapping[str, object], keys: Mapping[str, object]) -> Scenario:
    """The scenario of a model and flat keys, tables or both. Raises ScenarioError for a key that is none or no task's.

    >>> scenario_of("llama-3.1-8b", {"task": "serve", "max_model_len": 8192}).serve.max_model_len
    8192
    """
    kinds = KINDS[Scenario]
    if "model" in keys:
        raise ScenarioError("model", "is given twice: as the first argument and by name")
    if keys.get("task") is None:
        raise ScenarioError("task", f"is missing: expected {', '.join(TASKS)}")
    task = str(kinds["task"].read(keys["task"], "task"))
    name = table_of(task)
    top: dict[str, object] = {"model": model}
    settings: dict[str, object] = {}
    for key, value in keys.items():
        if key in kinds or key in TABLES:
            top[key] = value
        else:
            _check_home(key, task)
            settings[key] = value
    if settings:
        table = top.get(name)
        if table is not None and not isinstance(table, Mapping):
            raise ScenarioError(name, f"expected a table, got {shown(table)}")
        own = flat(TABLES[name], table or {}, name)
        flat(TABLES[name], {**(table or {}), **settings}, name)  # raises where a key is given twice
        twice = next((key for key in settings if key in own), None)
        if twice is not None:
            raise ScenarioError(twice, f"is given twice: {name}.{twice} is the same")
        top[name] = {**(table or {}), **settings}
    return Scenario.from_dict(top)


def _check_home(key: str, task: str) -> None:
    """Raise ScenarioError for a key that no table has, or another task's alone."""
    name = table_of(task)
    cls = TABLES[name]
    if key in KINDS[cls] or key in nested_tables(cls):
        return
    homes = [other for other, table in TABLES.items() if key in KINDS[table]]
    if not homes:
        raise unknown_key("", key, (*KINDS[Scenario], *TABLES, *KINDS[cls]))
    meant = called(key, name)
    hint = f": there it is {meant}" if meant is not None else ""
    raise ScenarioError(key, f"belongs to the task {' or '.join(homes)}, not to {task}{hint}")
