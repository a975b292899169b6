"""JSON Schema of a scenario, generated from its definition."""

from __future__ import annotations

from vramwise.scenario.definition import DEFAULTS, KINDS, TABLES, Scenario, Settings
from vramwise.scenario.nested import NestedTable, described, nested_tables
from vramwise.scenario.values import Schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> Schema:
    """JSON Schema (2020-12) of everything that `Scenario.from_dict` reads.

    What the schema cannot say, `from_dict` still checks: other letter case, and contradictions between keys.
    """
    properties = _properties(Scenario)
    for name, cls in TABLES.items():
        properties[name] = {
            "description": (cls.__doc__ or "").strip(),
            "type": ["object", "null"],
            "properties": _with_nested(_properties(cls), cls, f"#/properties/{name}/properties"),
            "additionalProperties": False,
        }
    return {
        "$schema": DIALECT,
        "title": "vramwise scenario",
        "type": "object",
        "properties": properties,
        "required": ["model", "task"],
        "additionalProperties": False,
        "allOf": [_belongs_to_task(name) for name in TABLES],
    }


def _properties(cls: type[Settings]) -> dict[str, Schema]:
    properties: dict[str, Schema] = {}
    for key, kind in KINDS[cls].items():
        schema = kind.schema()
        if kind.optional:
            schema = {"anyOf": [schema, {"type": "null"}]}
        default = DEFAULTS[cls][key]
        default_said = {} if default in (None, "") else {"default": kind.to_json(default)}
        properties[key] = {"description": described(cls, key), **schema, **default_said}
    return properties


def _with_nested(properties: dict[str, Schema], cls: type[Settings], where: str) -> dict[str, Schema]:
    """A table's properties and the nested tables beside them, whose keys point to the flat ones."""
    for name, nested in nested_tables(cls).items():
        table = _nested(name, nested, cls, where)
        flat = properties.get(name)
        if flat is None:
            properties[name] = table
        else:  # `fsdp` is a key and a table
            said = {key: value for key, value in flat.items() if key in ("description", "default")}
            rest = {key: value for key, value in flat.items() if key not in said}
            properties[name] = {**said, "anyOf": [rest, table]}
    return properties


def _nested(name: str, nested: NestedTable, cls: type[Settings], where: str) -> Schema:
    # a key that is a table as well is said once more: a pointer to it would take the table too
    keys: dict[str, Schema] = {
        inside: KINDS[cls][key].schema() if key == name else {"$ref": f"{where}/{key}"}
        for inside, key in nested.keys.items()
    }
    return {
        "description": f"{nested.title}: its settings, each under its own name or here",
        "type": ["object", "null"], "properties": keys, "additionalProperties": False,
    }  # fmt: skip


def _belongs_to_task(table: str) -> Schema:
    tasks = ["serve", "load"] if table == "serve" else [table]
    return {
        "if": {"properties": {table: {"type": "object"}}, "required": [table]},
        "then": {"properties": {"task": {"enum": tasks}}},
    }
