"""What a page shows around one scenario: the three questions, grids, all cards, two scenarios side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vramwise.errors import UsageError, VramwiseError
from vramwise.web.bodies import Body, only, scenario_in, table_in, text_in

if TYPE_CHECKING:
    from vramwise.result import Node, Result

MOST_CELLS = 1024
CARDS = (
    "rtx-3060", "rtx-4060", "t4", "rtx-4070", "rtx-4080", "rtx-3090", "rtx-4090", "rtx-5090", "a10", "l4", "a40",
    "l40s", "rtx-6000-ada", "a100-pcie-40gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm", "b200", "mi300x",
)  # fmt: skip
"""Cards that people have or rent; `cards` shows those of them that the catalog knows."""


def door(body: Body) -> dict[str, object]:
    """`{"model", "gpu", … of the machine}`: how it runs, is fine-tuned and trained there; without one, on usual ones.

    What `vramwise estimate MODEL --gpu CARD --json` has under the same keys.
    """
    from vramwise.estimation import described_model, estimate
    from vramwise.planner.door import door as answered
    from vramwise.planner.door import glances
    from vramwise.planner.machine import machine_keys, machine_of
    from vramwise.planner.ways import Question

    only(body, "model", *machine_keys())
    name = body.get("model")
    if not isinstance(name, Mapping):
        name = text_in(body, "model")
    found, model = described_model(name)
    if found.gguf_quant is not None:
        name = found.id
    words = [name] if isinstance(name, str) else ["config.json"]
    machine = {key: value for key, value in body.items() if key != "model" and value is not None}
    facts: dict[str, object] = {"model": model.id, "num_parameters": model.num_parameters}
    if machine:
        return facts | answered(Question(name, model, machine_of(**machine), estimate), words).to_dict()
    return facts | {"cards": {card: one.to_dict() for card, one in glances(name, model, estimate, words).items()}}


def cards(body: Body) -> dict[str, Any]:
    """`{"scenario", "gpus"}`: what is said of the scenario on each card; `gpus` names them, else the usual ones.

    Raises UsageError for more cards than are answered at once.
    """
    from vramwise.estimation import estimate
    from vramwise.hardware import find_gpu
    from vramwise.web.bodies import texts_in

    only(body, "scenario", "gpus")
    table = {**table_in(body, "scenario")}
    for key in ("gpu", "gpus", "gpu_total_bytes", "gpu_free_bytes"):
        table.pop(key, None)
    named = texts_in(body, "gpus")
    if len(named) > MOST_CELLS:
        raise UsageError(f"gpus: {len(named):,} cards; at most {MOST_CELLS:,}")
    rows = []
    for card in named or [one for one in CARDS if _is_known(one)]:
        gpu = find_gpu(card).gpu
        row: dict[str, object] = {"gpu": gpu.id, "name": gpu.name, "usable_bytes": gpu.usable_bytes}
        rows.append(row | _said(lambda gpu=gpu: estimate({**table, "gpu": gpu.id})))
    return {"cards": rows}


def _is_known(card: str) -> bool:
    from vramwise.hardware import find_gpu

    try:
        return find_gpu(card).gpu.usable_bytes is not None
    except VramwiseError:
        return False


def _said(asked: Any) -> dict[str, Any]:
    """Need, word and probability of an answer, or why there is none."""
    try:
        result: Result = asked()
    except VramwiseError as problem:
        return {"error": str(problem)}
    verdict = result.verdict
    return {
        "needed_bytes": int(result.needed.expected),
        "word": None if verdict is None else verdict.word,
        "probability": None if verdict is None else verdict.probability,
        "headroom_bytes": None if verdict is None else verdict.headroom_bytes,
    }


def grid(body: Body) -> dict[str, object]:
    """`{"scenario", "x": {"key", "values"}, "y": {"key", "values"}}`: a row of cells for each value of `y`.

    Raises UsageError for more cells than are answered at once, and for one key twice.
    """
    from vramwise.planner.grid import grid as over

    only(body, "scenario", "x", "y")
    scenario = scenario_in(body)
    (across, xs), (down, ys) = _axis(body, "x"), _axis(body, "y")
    if len(xs) * len(ys) > MOST_CELLS:
        raise UsageError(f"{len(xs) * len(ys):,} cells; at most {MOST_CELLS:,}")
    if across == down:
        raise UsageError(f"x and y are both {across}: expected two keys")
    found = over(scenario, {down: ys, across: xs}, replays=True).to_dict()
    return {
        "x": {"key": across, "values": xs}, "y": {"key": down, "values": ys},
        "usable_bytes": found["usable_bytes"], "needed_bytes": found["needed_bytes"], "words": found["word"],
        "peak_phases": found["peak_phase"], "errors": found["error"],
    }  # fmt: skip


def _axis(body: Body, name: str) -> tuple[str, list[Any]]:
    """Raises UsageError; a key that is none is left to the grid."""
    axis = table_in(body, name)
    only(axis, "key", "values")
    key, values = text_in(axis, "key"), axis.get("values")
    if not isinstance(values, list) or not values:
        raise UsageError(f"{name}.values: expected a list of values")
    task, dot, inner = key.partition(".")
    return inner if dot and task in ("train", "serve", "generate") else key, values


def difference(body: Body) -> dict[str, Any]:
    """`{"a", "b"}`, two scenarios: both needs, and the terms at the peaks that differ, which add up."""
    from vramwise.estimation import estimate

    only(body, "a", "b")
    a, b = estimate(scenario_in(body, "a")), estimate(scenario_in(body, "b"))
    terms = list(_terms(_peak(a), _peak(b), ""))
    said = sum(one["difference"] for one in terms)
    needs = [int(one.needed.expected) for one in (a, b)]
    rest = needs[1] - needs[0] - said
    if rest:
        inside = [sum(one[side] for one in terms) for side in ("a", "b")]
        terms.append({"path": "beside the moment", "a": needs[0] - inside[0], "b": needs[1] - inside[1],
                      "difference": rest})  # fmt: skip
    return {
        "a": _side(a), "b": _side(b), "difference": needs[1] - needs[0],
        "terms": sorted(terms, key=lambda one: -abs(one["difference"])),
        "settings": _settings(a.scenario, b.scenario),
    }  # fmt: skip


def _side(result: Result) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "model": result.model.id, "needed": result.needed.to_dict(), "peak_phase": result.peak_phase,
        "verdict": None if verdict is None else verdict.to_dict(),
        "quantities": {name: one.to_dict() for name, one in result.quantities.items()},
    }  # fmt: skip


def _peak(result: Result) -> Node | None:
    return next((phase.components for phase in result.phases if phase.name == result.peak_phase), None)


def _terms(a: Node | None, b: Node | None, path: str) -> Iterator[dict[str, Any]]:
    """The smallest terms in which two trees can be told apart, with the bytes of both."""
    if a is not None and b is not None and a.children and b.children:
        named = [{child.name: child for child in node.children} for node in (a, b)]
        if all(len(names) == len(node.children) for names, node in zip(named, (a, b), strict=True)):
            for name in dict.fromkeys((*named[0], *named[1])):
                yield from _terms(named[0].get(name), named[1].get(name), f"{path}/{name}" if path else name)
            return
    sizes = [0 if node is None else node.bytes for node in (a, b)]
    if any(sizes):
        name = path or next(node.name for node in (a, b) if node is not None)
        yield {"path": name, "a": sizes[0], "b": sizes[1], "difference": sizes[1] - sizes[0]}


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The keys of both resolved scenarios that differ."""
    flat = [dict(_flat(one)) for one in (a, b)]
    keys = dict.fromkeys((*flat[0], *flat[1]))
    pairs = ({"key": key, "a": flat[0].get(key), "b": flat[1].get(key)} for key in keys)
    return [pair for pair in pairs if pair["a"] != pair["b"]]


def _flat(table: Mapping[str, object], path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and key in ("train", "serve", "generate"):
            yield from _flat(value, f"{key}.")
        else:
            yield f"{path}{key}", value
