"""The tools that a model is given (Model Context Protocol): their schemas, and what each asks of the API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vramwise.scenario.definition import KINDS, TABLES, Scenario, Settings
from vramwise.scenario.nested import described
from vramwise.scenario.values import Choice, Kind

INSTRUCTIONS = (
    "GPU memory of training, fine-tuning and serving models, worked out before the run. Bytes are whole numbers; "
    "low-high is a 90 % interval; a verdict is fits, tight or does not fit. Ask `check` about a command line, "
    "`estimate` about a scenario, `plan` for what to change, `fit` for what a card can do, `compare` with a log."
)


def tools() -> list[dict[str, Any]]:
    """Name, description and input schema of each."""
    text, number = {"type": "string"}, {"type": "number"}
    scenario, same = _scenario(), {"type": "object", "description": "a scenario, as `estimate` takes it"}
    detail = {"enum": ["short", "full"], "description": "full: every term of every moment, with formula and source"}
    machine = {"gpu": {**text, "description": "a card by name: 4090, 2xh100, 24GiB"}, "num_gpus": {"type": "integer"}}
    return [
        _tool("estimate", "The memory of a scenario: quantities, moments, verdict, and what saves most.",
              {"scenario": scenario, "detail": detail}, "scenario"),
        _tool("plan", "What to change, or how many of which GPUs in which layout, so that a scenario fits.",
              {"scenario": same, "goal": {"enum": ["run", "fine-tune", "train"]},
               "rank": {"enum": ["change", "time", "memory", "money", "front"]}, "risk": number,
               "keep": {"type": "array", "items": text}, "offloads": {"type": "boolean"}}, "scenario"),
        _tool("fit", "Which models of the catalog run and can be fine-tuned on a machine, the largest first.",
              {**machine, "task": {"enum": ["serve", "train"]}, "family": text,
               "params": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
               "limit": {"type": "integer", "minimum": 1}}, "gpu"),
        _tool("check", "Whether a command line (vllm serve …, torchrun …) or a scenario fits on a card.",
              {"command": {**text, "description": "the whole command line"}, "scenario": same,
               "settings": {"type": "object", "description": "keys over it, such as gpu"}}),
        _tool("compare", "What an engine printed at its start beside the estimate of the same scenario.",
              {"text": {**text, "description": "the engine's start-up log"},
               "scenario": {"type": "object", "description": "keys that the log leaves open, such as gpu"}}, "text"),
    ]  # fmt: skip


def _scenario() -> dict[str, Any]:
    """A scenario's schema as a model reads it: every key once, its kind and its line of help."""
    tables = {name: {"type": "object", "properties": _keys(cls)} for name, cls in TABLES.items()}
    return {"type": "object", "required": ["model", "task"], "properties": {**_keys(Scenario), **tables}}


def _keys(cls: type[Settings]) -> dict[str, object]:
    return {key: {**_kind(kind), "description": described(cls, key)} for key, kind in KINDS[cls].items()}


def _kind(kind: Kind[object]) -> dict[str, object]:
    if isinstance(kind, Choice):
        return {"enum": list(kind.names)}
    schema = kind.schema()
    return {"type": schema["type"]} if isinstance(schema.get("type"), str) else {}


def _tool(name: str, description: str, properties: dict[str, object], *required: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"name": name, "description": description, "input_schema": schema | {"required": list(required)}}


def question(name: str, arguments: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The API's name and body for a call."""
    if name == "estimate":
        scenario = arguments.get("scenario")
        return name, dict(scenario) if isinstance(scenario, Mapping) else {}
    if name == "fit":
        return name, {"limit": 20, **arguments}
    return name, dict(arguments)


def shown(name: str, arguments: Mapping[str, Any], text: str) -> str:
    """The answer as a model reads it; an estimate without the trees of its moments, unless they were asked for."""
    if name != "estimate" or arguments.get("detail") == "full":
        return text
    result = json.loads(text)
    for phase in result.get("phases", ()):
        phase["components"] = {part["name"]: part["bytes"] for part in phase["components"]["children"]}
    return json.dumps(result)
