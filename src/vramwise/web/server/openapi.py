"""The API described (OpenAPI 3.1), from the definition that flags, files and checks are made from."""

from __future__ import annotations

from typing import Any

from vramwise import __version__
from vramwise.result_schema import result_schema
from vramwise.scenario import scenario_schema
from vramwise.web.api import ANSWERS, function_of

_OF_A_SCENARIO = frozenset({"estimate", "result", "suggestions"})
_OF_A_FILE = frozenset({"read", "oom", "compare", "profile"})
_AROUND_A_SCENARIO = frozenset({"plan", "dry-run", "export", "words", "cards", "grid", "nearest"})
_STATUSES = {
    "400": "the question is wrong: exit code 2 of the command",
    "403": "asked by a page of another origin",
    "404": "a model or a file is not reachable: exit code 4",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "415": "the body is no JSON by its Content-Type",
    "421": "asked under another host's name",
    "422": "a known model, or a setting of it, that is not described yet: exit code 1",
    "503": "too many questions at once",
    "504": "the answer took too long",
}


def description() -> dict[str, Any]:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "vramwise", "version": __version__, "license": {"name": "Apache-2.0"},
                 "description": "How much GPU memory a model needs. Bytes are whole numbers."},
        "paths": {f"/api/v1/{name}": {"post": _operation(name, help)} for name, (_, help) in ANSWERS.items()},
        "components": {"schemas": _schemas()},
    }  # fmt: skip


def _operation(name: str, help: str) -> dict[str, object]:
    from importlib import import_module

    function = getattr(import_module(f"vramwise.web.answers.{ANSWERS[name][0]}"), function_of(name))
    refusals = {status: _json({"$ref": "#/components/schemas/Error"}, why) for status, why in _STATUSES.items()}
    return {
        "operationId": name,
        "summary": help,
        "description": " ".join((function.__doc__ or "").split()),
        "requestBody": {"required": True, "content": {"application/json": {"schema": _asked(name)}}},
        "responses": {"200": _json(_answered(name), "the answer"), **refusals},
    }


def _json(schema: dict[str, object], what: str) -> dict[str, object]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _asked(name: str) -> dict[str, Any]:
    scenario, text = {"$ref": "#/components/schemas/Scenario"}, {"type": "string"}
    if name in _OF_A_SCENARIO:
        return scenario
    if name in _OF_A_FILE:
        return {
            "type": "object",
            "properties": {"name": text, "text": text, "base64": text, "path": text, "size": {"type": "integer"}},
        }
    if name in _AROUND_A_SCENARIO:
        return {"type": "object", "properties": {"scenario": scenario}, "required": ["scenario"]}
    if name == "difference":
        return {"type": "object", "properties": {"a": scenario, "b": scenario}, "required": ["a", "b"]}
    return {"type": "object"}


def _answered(name: str) -> dict[str, object]:
    return {"$ref": "#/components/schemas/Result"} if name in ("estimate", "result") else {"type": "object"}


def _schemas() -> dict[str, object]:
    text = {"type": "string"}
    error = {
        "type": "object",
        "properties": {"kind": text, "message": text, "exit_code": {"type": "integer"}, "path": text,
                       "matches": {"type": "array", "items": text}},
        "required": ["kind", "message", "exit_code"],
    }  # fmt: skip
    found = {
        "Error": {"type": "object", "properties": {"error": error}, "required": ["error"]},
        "Scenario": scenario_schema(),
        "Result": result_schema(),
    }
    return {name: _moved(schema, f"#/components/schemas/{name}/") for name, schema in found.items()}


def _moved(schema: object, home: str) -> Any:
    """The schema with its inner references where they stand in the document."""
    if isinstance(schema, dict):
        return {
            key: f"{home}{value.removeprefix('#/')}" if key == "$ref" else _moved(value, home)
            for key, value in schema.items() if key != "$schema"
        }  # fmt: skip
    return [_moved(one, home) for one in schema] if isinstance(schema, list) else schema
