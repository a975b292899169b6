"""What holds for every answer, whatever was asked."""

from __future__ import annotations

import json
import math
from functools import cache
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.result import Node, Result
from vramwise.result_schema import result_schema

LONGEST_COMPLAINT = 700
FRACTIONS = frozenset({"max_concurrency", "tokens_per_second", "step_time_s"})
NO_KERNEL = ("does not run on", "does not multiply in", "has no kernel for")  # however much memory there is
LLAMA_CPP = ("llama.cpp", "ollama")


def answer(scenario: dict[str, Any]) -> Result | None:
    """The answer, or None where the scenario is refused in one clear line."""
    try:
        return estimate(scenario)
    except VramwiseError as refusal:
        said = str(refusal)
        assert 0 < len(said) < LONGEST_COMPLAINT, said
        assert "\n" not in said, said
        return None


def holds_together(result: Result) -> None:
    """Sums, maxima, intervals, verdict and JSON of one answer."""
    is_one_document(result)
    for phase in result.phases:
        adds_up(phase.components)
    if result.phases and result.peak_phase is not None:
        peak = next(phase for phase in result.phases if phase.name == result.peak_phase)
        assert peak.bytes == max(phase.bytes for phase in result.phases), result.peak_phase
    for name, quantity in result.quantities.items():
        if name == "oom":
            continue
        ends = (quantity.low, quantity.expected, quantity.high)
        assert all(math.isfinite(end) and end >= 0 for end in ends), (name, ends)
        assert quantity.low <= quantity.expected <= quantity.high, (name, ends)
        assert name in FRACTIONS or all(type(end) is int for end in ends), (name, ends)
    counters_are_nested(result)
    low_ends_keep_what_is_certain(result)
    ranks_hold_the_peak(result)
    verdict_follows(result)


def adds_up(node: Node) -> None:
    assert 0 <= node.low <= node.bytes <= node.high, node.name
    if node.children:
        assert sum(child.bytes for child in node.children) == node.bytes, node.name
    for child in node.children:
        adds_up(child)


def counters_are_nested(result: Result) -> None:
    """allocated ≤ reserved ≤ process, at each end."""
    found = [
        result.quantities[name]
        for name in ("peak_allocated", "peak_reserved", "nvidia_smi")
        if name in result.quantities
    ]
    for inner, outer in pairwise(found):
        for end in ("low", "expected", "high"):
            assert getattr(inner, end) <= getattr(outer, end), (end, inner, outer)


def low_ends_keep_what_is_certain(result: Result) -> None:
    """No counter of a training may lie below its weights, gradients and states, and what its process has besides."""
    if "train" not in result.scenario or "nvidia_smi" not in result.quantities:
        return
    inside = ("weights", "adapters", "master weights", "optimizer states", "gradients", "library workspace")
    for phase in result.phases:
        parts = phase.components.children
        held = sum(part.low for part in parts if part.name in inside)
        process = held + sum(part.low for part in parts if part.name in ("CUDA context", "NCCL"))
        for name, least in {
            "peak_allocated": held, "peak_reserved": held, "nvidia_smi": process, "total_needed": process,
        }.items():  # fmt: skip
            assert result.quantities[name].low >= least, (name, phase.name, result.quantities[name], least)


def ranks_hold_the_peak(result: Result) -> None:
    """The heaviest rank is the one whose moments are shown; llama.cpp's moments are sums over its devices.

    Of a server that does not fit those of the stage that lacks most are shown, which need not hold most, and of unequal
    cards under `device_map` those of the one with the least room left.
    """
    if not result.ranks or not result.phases or result.scenario.get("serve", {}).get("engine") in LLAMA_CPP:
        return
    heaviest, shown = max(rank.bytes for rank in result.ranks), max(phase.bytes for phase in result.phases)
    lacks_most = "serve" in result.scenario and result.verdict is not None and not result.verdict.fits
    if lacks_most or "gpus" in result.scenario:
        assert heaviest >= shown, result.ranks
    else:
        assert heaviest == shown, result.ranks


def verdict_follows(result: Result) -> None:
    """One verdict: the word, `fits`, `oom` and the headroom say the same, and the need decides."""
    verdict, capacity = result.verdict, result.capacity
    if verdict is None or capacity is None:
        assert verdict is None
        return
    word = verdict.word
    assert word in ("fits", "tight", "does not fit")
    assert verdict.fits == (word != "does not fit")
    assert 0 <= verdict.probability <= 1
    lacks_a_kernel = any(said in reason for reason in verdict.reasons for said in NO_KERNEL)
    if "oom" in result.quantities and not lacks_a_kernel:
        assert result.quantities["oom"].expected != verdict.fits
    if verdict.fits:
        assert verdict.headroom_bytes >= 0
        assert (word == "fits") == (verdict.probability >= 0.95), (word, verdict.probability)
    needed = result.quantities.get("total_needed")
    if needed is None or result.scenario.get("serve", {}).get("engine") in LLAMA_CPP:
        return
    if not lacks_a_kernel:
        assert verdict.fits == (needed.expected <= capacity.usable_bytes), (needed, capacity, verdict)


@cache
def _schema() -> Draft202012Validator:
    return Draft202012Validator(result_schema())


def is_one_document(result: Result) -> None:
    """The JSON is the dict, follows its schema, has no strange numbers and is read back as the same."""
    table = result.to_dict()
    text = json.dumps(table, allow_nan=False)
    assert json.loads(result.to_json()) == json.loads(text)
    shallow = {**table, "phases": [{**phase, "components": _leaf(phase["components"])} for phase in table["phases"]]}
    _schema().validate(shallow)
    assert Result.from_dict(json.loads(text)).to_dict() == json.loads(text)


def _leaf(tree: dict[str, Any]) -> dict[str, Any]:
    """A tree without its lower half: terms are alike, and the schema walks slowly."""
    return {**tree, "children": [{**child, "children": []} for child in tree["children"]]}


def same(one: Result, other: Result) -> None:
    """Two answers that say the same, to the byte; what was decided and what was asked for have other words."""
    ours, theirs = ({**result.to_dict(), "notes": []} for result in (one, other))
    for table in (ours, theirs):
        if table["verdict"] is not None:
            table["verdict"] = {**table["verdict"], "reasons": []}
    for key in ours:
        assert ours[key] == theirs[key], key
