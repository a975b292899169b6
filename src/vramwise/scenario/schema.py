"""JSON Schema of a scenario, generated from its definition."""

from __future__ import annotations

from typing import Any

from vramwise.scenario.definition import DEFAULTS, KINDS, TABLES, Scenario, Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def scenario_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of everything that `Scenario.from_dict` reads.

    What the schema cannot say, `from_dict` still checks: other letter case, and contradictions between keys.
    """
    properties = _properties(Scenario)
    for name, cls in TABLES.items():
        properties[name] = {
            "description": (cls.__doc__ or "").strip(),
            "type": ["object", "null"],
            "properties": _properties(cls),
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


def _properties(cls: type[Settings]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    for key, kind in KINDS[cls].items():
        schema = kind.schema()
        if kind.optional:
            schema = {"anyOf": [schema, {"type": "null"}]}
        default = DEFAULTS[cls][key]
        described = {} if default in (None, "") else {"default": kind.to_json(default)}
        properties[key] = {"description": kind.help, **schema, **described}
    return properties


def _belongs_to_task(table: str) -> dict[str, Any]:
    tasks = ["serve", "load"] if table == "serve" else [table]
    return {
        "if": {"properties": {table: {"type": "object"}}, "required": [table]},
        "then": {"properties": {"task": {"enum": tasks}}},
    }
