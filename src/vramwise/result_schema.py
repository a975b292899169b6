"""JSON Schema of the answer to a scenario."""

from __future__ import annotations

from typing import Any

from vramwise.result import FRACTIONS, KINDS, QUANTITIES, SCHEMA, VERDICT_WORDS


def result_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `Result.to_dict`."""
    text, whole, number = {"type": "string"}, {"type": "integer"}, {"type": "number"}
    size = {"type": "integer", "minimum": 0}
    texts = {"type": "array", "items": text}
    interval = {name: _table(low=number, expected=number, high=number) for name in QUANTITIES}
    for name in QUANTITIES:
        if name not in FRACTIONS:
            interval[name] = _table(low=size, expected=size, high=size)
    interval["oom"] = _table(expected={"type": "boolean"})
    node = _table(
        name=text, bytes=size, low=size, high=size, kind={"enum": list(KINDS)}, formula=text,
        inputs={"type": "object"}, source=text, children={"type": "array", "items": {"$ref": "#/$defs/node"}},
    )  # fmt: skip
    phase = _table(name=text, bytes=size, components={"$ref": "#/$defs/node"})
    model = _table(
        id=text, num_parameters=whole, num_active_parameters=whole, num_trainable_parameters=whole, source=text
    )
    capacity = _table(gpu=text, total_bytes=size, usable_bytes=size)
    verdict = _table(
        word={"enum": list(VERDICT_WORDS)}, fits={"type": "boolean"}, headroom_bytes=whole, probability=number,
        reasons=texts,
    )  # fmt: skip
    result = _table(
        schema={"const": SCHEMA},
        scenario={"type": "object"},
        model=model,
        quantities={"type": "object", "properties": interval, "additionalProperties": False},
        phases={"type": "array", "items": phase},
        peak_phase={"type": ["string", "null"]},
        ranks={"type": "array", "items": _table(name=text, bytes=size)},
        capacity={"anyOf": [capacity, {"type": "null"}]},
        verdict={"anyOf": [verdict, {"type": "null"}]},
        notes=texts,
        site={"type": "array", "items": _change_schema()},
    )
    suggestion = _table(
        change={"type": "object"}, command={"type": ["string", "null"]},
        total_needed=_table(low=size, expected=size, high=size), saves_bytes=whole, fits={"type": "boolean"}, cost=text,
    )  # fmt: skip
    result["properties"]["suggestions"] = {"type": "array", "items": suggestion}  # where they were asked for
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, "title": "vramwise result", **result, "$defs": {"node": node}}


def _change_schema() -> dict[str, Any]:
    """What runs of one's own changed: the term, the runs, and the constant before and after."""
    text, ends = {"type": "string"}, _table(**{end: {"type": "number"} for end in ("low", "expected", "high")})
    words = dict.fromkeys(("term", "gpu", "program", "series", "of", "driver", "cuda"), text)
    counts = {name: {"type": "integer"} for name in ("ranks", "runs", "left_out")}
    return _table(**words, **counts, shipped=ends, learned=ends)


def _table(**properties: dict[str, Any]) -> dict[str, Any]:
    """The schema of a table with these keys, all of them and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
