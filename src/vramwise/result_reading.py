"""A result out of the JSON that it was written as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.result import Capacity, ModelFacts, Node, Phase, Quantity, Rank, Result, Suggestions, Verdict


def result_of(data: Mapping[str, Any]) -> Result:
    """What `Result.to_dict` wrote. Raises what reading a broken table raises."""
    capacity, verdict = data["capacity"], data["verdict"]
    return Result(
        scenario=dict(data["scenario"]),
        model=ModelFacts(**data["model"]),
        quantities={name: _quantity(value) for name, value in data["quantities"].items()},
        phases=tuple(Phase(p["name"], _node(p["components"])) for p in data["phases"]),
        peak_phase=data["peak_phase"],
        ranks=tuple(Rank(**rank) for rank in data["ranks"]),
        capacity=Capacity(**capacity) if capacity else None,
        verdict=_verdict(verdict) if verdict else None,
        notes=tuple(data["notes"]),
        site=tuple(data.get("site", ())),
        suggestions=Suggestions.of(data.get("suggestions", ())),
    )


def _quantity(value: Mapping[str, Any]) -> Quantity:
    expected = value["expected"]
    return Quantity(value.get("low", expected), expected, value.get("high", expected))


def _verdict(value: Mapping[str, Any]) -> Verdict:
    word, headroom, probability = (value[name] for name in ("word", "headroom_bytes", "probability"))
    found = Verdict(word, headroom, probability, tuple(value["reasons"]))
    if value["fits"] is not found.fits:
        raise ValueError(f'a verdict "{found.word}" with fits {value["fits"]}')
    return found


def _node(value: Mapping[str, Any]) -> Node:
    return Node(**{**value, "children": tuple(_node(child) for child in value["children"])})
