"""JSON Schema of a measured case, around the schema of its scenario."""

from __future__ import annotations

from vramwise.accuracy.cases import CONFIDENCES, SPECIFIED
from vramwise.result import QUANTITIES
from vramwise.scenario import scenario_schema
from vramwise.scenario.values import Schema


def case_schema() -> dict[str, object]:
    """JSON Schema (2020-12) of one line of a file of measured cases.

    Like the reader it lets other keys and other quantities pass; their values must still be numbers.
    """
    scenario = scenario_schema()
    dialect = scenario.pop("$schema")
    return {
        "$schema": dialect,
        "title": "vramwise measured case",
        "type": "object",
        "required": ["id", "scenario", "measured"],
        "properties": {
            "id": _described("unique in its file", {"type": "string", "pattern": r"\S"}),
            "scenario": _described("what ran", scenario),
            "measured": _described(
                "quantity to what was measured: bytes or counts",
                {
                    "type": "object",
                    "minProperties": 1,
                    "properties": {name: {"type": "boolean" if name == "oom" else "number"} for name in QUANTITIES},
                    "additionalProperties": {"type": "number"},
                },
            ),
            "precision_bytes": _described("half a unit of the last printed digit, in bytes", _NUMBERS),
            "precision": _described("the same for quantities that are not bytes", _NUMBERS),
            "source": _described("repository and file or issue; paper and table", {"type": "string"}),
            "quote": _described("the printed words", {"type": "string"}),
            "confidence": _described("that numbers and settings belong together", {"enum": [*CONFIDENCES]}),
            "specified": _described("how much of what matters the source states", {"enum": [*SPECIFIED]}),
            "unstated": _described("settings that matter and are not stated", _TEXTS),
            "closed_budget": _described("vLLM's four budget lines add up", {"type": "boolean"}),
            "rig": _described("what the harness adds", {"type": "string"}),
            "rig_floor_bytes": _described(
                "memory of the harness itself, added to the estimated nvidia_smi",
                {"type": "integer", "minimum": 0},
            ),
            "engine_version": _described("where the scenario has no place for it", {"type": "string"}),
            "extra": _described("what the scenario and the quantities have no name for", {"type": "object"}),
            "notes": _described("what to know before trusting the case", _TEXTS),
        },
    }


_NUMBERS: Schema = {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
_TEXTS: Schema = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def _described(description: str, schema: dict[str, object]) -> dict[str, object]:
    return {"description": description, **schema}
