"""`vramwise schema`: the JSON Schema of a scenario, a result or a measured case."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from ..errors import UnknownNameError, nearest
from ..result import QUANTITIES, result_schema
from ..scenario import scenario_schema

HELP = "print the JSON Schema of a scenario, a result or a measured case"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="?", default="scenario", help="scenario (default), result or case", metavar="WHAT"
    )


def run(args: argparse.Namespace) -> int:
    """Print one schema; raises UnknownNameError for anything that has none."""
    make = SCHEMAS.get(args.what)
    if make is None:
        matches = nearest(args.what, SCHEMAS) or list(SCHEMAS)
        raise UnknownNameError("schema", args.what, matches)
    print(json.dumps(make(), indent=2, ensure_ascii=False))
    return 0


def case_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a measured case: a scenario, what was measured, and where that is written."""
    scenario = scenario_schema()
    dialect = scenario.pop("$schema")
    text, number = {"type": "string"}, {"type": "number"}
    measured = {name: {"type": "boolean"} if name == "oom" else number for name in QUANTITIES}
    return {
        "$schema": dialect,
        "title": "vramwise measured case",
        "type": "object",
        "properties": {
            "id": {"type": "string", "minLength": 1},
            "scenario": scenario,
            "measured": {"type": "object", "properties": measured, "additionalProperties": False},
            "precision_bytes": {"type": "object", "additionalProperties": number},
            "source": text,
            "quote": text,
            "confidence": {"enum": ["high", "medium", "low"]},
            "unstated": {"type": "array", "items": text},
            "engine_version": text,
            "specified": {"enum": ["full", "most", "poor"]},
            "closed_budget": {"type": "boolean"},
            "rig": text,
            "rig_floor_bytes": {"type": "integer", "minimum": 0},
            "extra": {"type": "object"},
            "notes": {"type": ["string", "array"]},
        },
        "required": ["id", "scenario", "measured", "source"],
    }


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    "scenario": scenario_schema,
    "result": result_schema,
    "case": case_schema,
}
