"""Nested tables by owner: `{"train": {"zero": {"stage": 3}}}` says what `{"train": {"zero_stage": 3}}` says.

Which tables there are follows from the owners of a table's keys. In the table of its owner a key leaves out that name
where it begins with it (`lora_rank` is `lora.rank`). The table of an engine or framework takes everybody's keys too.

What is the same thing under another name: in the table of another task, or with an engine that has its own word.

A scenario is read from such tables. What `--help` and the schema say of a key is its own line, with its owner's name in
front and the group it stands in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeVar

from vramwise.engines import DEFAULT, engine_named
from vramwise.errors import ScenarioError
from vramwise.records import record
from vramwise.scenario.names import TASKS
from vramwise.scenario.settings import LLAMA_CPP, OLLAMA, Owner, Settings, kinds_of, ownership_of, title_of
from vramwise.scenario.values import refusal, shown, unknown_key

# by table; the engines' own words for these stand in their records
_SAME: Final[tuple[Mapping[str, str], ...]] = (
    {"train": "micro_batch_size", "serve": "max_num_seqs", "generate": "batch_size"},
    {"train": "sequence_length", "serve": "max_model_len", "generate": "prompt_tokens"},
    {"train": "precision", "serve": "dtype", "generate": "dtype"},
)


def called(key: str, table: str, engine: str | None = None) -> str | None:
    """What a key of another task or engine is called in a table (and by the engine); None where nothing is the same."""
    if engine is not None and key in engine_named(engine).words:
        return engine_named(engine).words[key]
    key = engine_named(DEFAULT).words.get(key, key)
    found = next((row.get(table) for row in _SAME if key in row.values()), None)
    return None if found == key else found


@record
class NestedTable:
    """A table inside a task's table: `keys` has, by the name in there, the key that it stands for."""

    name: str
    owner: Owner | None
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return title_of(self.owner) if self.owner is not None else self.name

    @property
    def program(self) -> Owner | None:
        """The engine or framework whose table it is."""
        return self.owner if self.owner is not None and self.owner.is_program else None


_nested: dict[type[Settings], dict[str, NestedTable]] = {}


def nested_tables(cls: type[Settings]) -> Mapping[str, NestedTable]:
    """The nested tables of a task's table, by name."""
    if cls not in _nested:
        _nested[cls] = _nested_tables(cls)
    return _nested[cls]


def _nested_tables(cls: type[Settings]) -> dict[str, NestedTable]:
    tables: dict[str, NestedTable] = {}
    owners: dict[str, Owner] = {}
    for whose in ownership_of(cls).values():
        for owner in whose.all:
            owners.setdefault(owner.table, owner)
    for key, whose in ownership_of(cls).items():
        for name, inside in whose.places.items():
            tables.setdefault(name, NestedTable(name, owners.get(name))).keys[inside] = key
    for key, whose in ownership_of(cls).items():
        for table in tables.values():
            if table.program is not None and not whose.all and key != table.program.key:
                table.keys[key] = key
    return tables


def flattened(cls: type[Settings], table: Mapping[str, object], path: str) -> Iterator[tuple[str, object, str]]:
    """Every key of a table with its value and its path; nested ones under the name that they stand for.

    Raises ScenarioError for a nested key that does not exist and for one that is given twice.
    """
    given: dict[str, str] = {}
    nested = nested_tables(cls)
    for name, value in table.items():
        for key, entry, where in _entries(nested.get(name), name, value, f"{path}.{name}"):
            if key in given:
                raise ScenarioError(where, f"is given twice: {given[key]} is the same")
            given[key] = where
            yield key, entry, where


def check_programs(settings: Settings, table: Mapping[str, object], path: str) -> None:
    """Raise ScenarioError for the nested table of an engine or framework that the settings do not run."""
    for name, nested in nested_tables(type(settings)).items():
        program = nested.program
        if program is not None and isinstance(table.get(name), Mapping):
            value = getattr(settings, program.key)
            if not program.is_there(value):
                raise ScenarioError(
                    f"{path}.{name}", f"belongs to the {program.key} {name}; the {program.key} is {value}"
                )


def flat(cls: type[Settings], table: Mapping[str, object], path: str) -> dict[str, object]:
    """The table with every key under its own name. Raises as `flattened` does."""
    return {key: value for key, value, _ in flattened(cls, table, path)}


def _entries(nested: NestedTable | None, name: str, value: object, path: str) -> Iterator[tuple[str, object, str]]:
    if nested is None or (name in nested.keys.values() and not isinstance(value, Mapping)):
        yield name, value, path
        return
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise refusal(path, "a table", value)
    for inside, entry in value.items():
        key = nested.keys.get(inside)
        if key is None:
            raise unknown_key(path, inside, nested.keys)
        yield key, entry, f"{path}.{inside}"


_MOST_OWNERS = 2
_TWINS = {OLLAMA: LLAMA_CPP}


def described(cls: type[Settings], key: str, *, group: str = "") -> str:
    """A key's line of help; its owners stand in front where they are few and are not the name of the group."""
    whose = ownership_of(cls)[key]
    titles = dict.fromkeys(title_of(_TWINS.get(owner, owner)) for owner in whose.owners)
    named = 0 < len(titles) <= _MOST_OWNERS and list(titles) != [group] and all(titles)
    return f"{', '.join(titles)}: {kinds_of(cls)[key].help}" if named else kinds_of(cls)[key].help


def group_of(cls: type[Settings], key: str) -> str:
    """The title of the nested table that a key belongs to, where that is one alone; else empty."""
    table = table_beside(cls, key)
    return nested_tables(cls)[table].title if table else ""


def table_beside(cls: type[Settings], key: str) -> str:
    """The name of the nested table that a key belongs to, where that is one alone; else empty. Its title may stand in
    an engine's record, the name does not."""
    places = set(ownership_of(cls)[key].places) - {OLLAMA.table}
    return places.pop() if len(places) == 1 else ""


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
    values: dict[str, object] = {}
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
