"""How right the numbers are: measured cases beside the estimates of this program, worked out when they are asked for.

cases.jsonl holds the measured cases of benchmarks/cases without quotes and notes (tools/build_web_cases.py writes it).
"""

from __future__ import annotations

import json
from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.web.bodies import Body, choice_in, only, scenario_in, whole_in

if TYPE_CHECKING:
    from vramwise.accuracy import Case
    from vramwise.accuracy.comparison import Outcome
    from vramwise.scenario import Scenario

CASES = Path(__file__).parents[1] / "cases.jsonl"
MOST_NEAREST = 50


def nearest(body: Body) -> dict[str, Any]:
    """`{"scenario", "limit"}`: cases of the same task, engine or framework first, then of method and size."""
    only(body, "scenario", "limit")
    scenario, limit = scenario_in(body), whole_in(body, "limit", 8, most=MOST_NEAREST)
    asked = traits_of(scenario)
    found = sorted((case for case in _cases() if case.scenario.get("task") == scenario.task),
                   key=lambda case: (_distance(asked, case), case.id))[:limit]  # fmt: skip
    rows = [_row(outcome) for outcome in map(_outcome, found)]
    errors = sorted(abs(one["error"]) for row in rows for one in row["compared"] if one["error"] is not None)
    return {"cases": rows, "median_absolute_error": errors[len(errors) // 2] if errors else None}


def accuracy(body: Body) -> dict[str, Any]:
    """`{"by", "offset", "limit"}`: the whole table of errors; with `limit` the cases from `offset` instead."""
    from vramwise.accuracy.report import Report
    from vramwise.accuracy.table import GROUPS, tabulate

    only(body, "by", "offset", "limit")
    cases = _cases()
    if body.get("limit") is not None:
        first = whole_in(body, "offset", 0, least=0)
        chosen = cases[first : first + whole_in(body, "limit", MOST_NEAREST, most=200)]
        return {"total": len(cases), "cases": [_row(_outcome(case)) for case in chosen]}
    by = choice_in(body, "by", list(GROUPS), "engine")
    outcomes = tuple(map(_outcome, cases))
    table = Report(outcomes, (), tabulate(outcomes, by)).to_dict()
    return {key: table[key] for key in ("schema", "cases", "rows", "oom", "errors")}


@cache
def _cases() -> tuple[Case, ...]:
    from vramwise.accuracy.cases import Case, read_cases

    return tuple(one for one in read_cases(CASES) if isinstance(one, Case))


_outcomes: dict[str, Outcome] = {}


def _outcome(case: Case) -> Outcome:
    """The case held against its estimate; it is of this program, so it is worked out once."""
    from vramwise.accuracy.comparison import compare
    from vramwise.estimation import estimate

    if case.id not in _outcomes:
        _outcomes[case.id] = compare(case, estimate)
    return _outcomes[case.id]


def traits_of(scenario: Scenario) -> dict[str, Any]:
    """What makes two scenarios alike."""
    from vramwise.estimation import model_of

    settings = scenario.settings
    model = model_of(scenario)[1]
    return {
        "engine": getattr(settings, "framework", None) or getattr(settings, "engine", None),
        "method": getattr(settings, "method", None),
        "quantization": getattr(settings, "quantization", None),
        "gpus": scenario.num_gpus,
        "type": model.family,
        "size": model.num_parameters,
    }


@cache
def _known_traits() -> dict[str, dict[str, Any] | None]:
    """The traits of every case by its id, as they were written beside it."""
    lines = CASES.read_text("utf-8").splitlines()
    return {case["id"]: case.get("traits") for case in map(json.loads, lines)}


def _distance(asked: dict[str, Any], case: Case) -> float:
    """How unlike a case is: another program counts most, then another method, size, quantization, family, cards."""
    own = _known_traits()[case.id]
    if own is None:
        return float("inf")
    weights = {"engine": 16.0, "method": 4.0, "quantization": 2.0, "type": 1.0}
    far = sum(weight for key, weight in weights.items() if own[key] != asked[key])
    far += min(8.0, 2 * abs(log(max(own["size"], 1) / max(asked["size"], 1))))
    return far + min(4.0, abs(log(max(own["gpus"], 1) / max(asked["gpus"], 1))))


def _row(outcome: Outcome) -> dict[str, Any]:
    case = outcome.case
    compared = [
        {
            "quantity": one.quantity, "measured": one.measured, "low": one.low, "expected": one.expected,
            "high": one.high, "error": one.error if abs(one.error) != float("inf") else None,
            "in_interval": one.in_interval,
        }
        for one in outcome.comparisons
    ]  # fmt: skip
    oom = None if outcome.oom is None else {"measured": outcome.oom.measured, "expected": outcome.oom.expected}
    return {
        "id": case.id, "engine": case.engine, "engine_version": case.engine_version, "scenario": dict(case.scenario),
        "source": case.source, "confidence": case.confidence, "specified": case.specified, "compared": compared,
        "oom": oom, "failure": None if outcome.failure is None else outcome.failure.message,
    }  # fmt: skip
