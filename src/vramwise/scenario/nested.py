"""Nested tables by owner: `{"train": {"zero": {"stage": 3}}}` says what `{"train": {"zero_stage": 3}}` says.

Which tables there are follows from the owners of a table's keys. In the table of its owner a key leaves out that name
where it begins with it (`lora_rank` is `lora.rank`). The table of an engine or framework takes everybody's keys too.

What is the same thing under another name: in the table of another task, or with an engine that has its own word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from vramwise.engines import DEFAULT, engine_named
from vramwise.errors import ScenarioError
from vramwise.records import record
from vramwise.scenario.messages import refusal, unknown_key
from vramwise.scenario.owners import Owner, title_of
from vramwise.scenario.settings import Settings, ownership_of

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
