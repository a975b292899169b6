"""How right the numbers are: measured cases beside the estimates of this program, worked out when they are asked for.

The cases are those of benchmarks/cases, which an installed package carries as web/cases.
"""

from __future__ import annotations

from functools import cache
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramwise.errors import UsageError, VramwiseError
from vramwise.web.bodies import Body, choice_in, only, scenario_in, whole_in

if TYPE_CHECKING:
    from vramwise.accuracy import Case
    from vramwise.accuracy.comparison import Outcome
    from vramwise.scenario import Scenario

_WEB = Path(__file__).parents[1]
PLACES = (_WEB / "cases", _WEB.parents[2] / "benchmarks" / "cases")
"""Where the cases lie in an installed package, and in a checkout."""
MOST_NEAREST = 50
MOST_DESCRIBED = 60
"""Cases whose model's size is looked at: those that are alike in all that a scenario says by itself."""


def nearest(body: Body) -> dict[str, object]:
    """`{"scenario", "limit"}`: cases of the same task, engine or framework first, then of method and size."""
    only(body, "scenario", "limit")
    scenario, limit = scenario_in(body), whole_in(body, "limit", 8, most=MOST_NEAREST)
    asked, size = _traits(scenario), _size(scenario)
    same = [(_unlike(asked, one), case) for case in _cases() if (one := _scenario(case)) and one.task == scenario.task]
    same.sort(key=lambda pair: (pair[0], pair[1].id))
    near = [(far + _unlike_size(size, case), case) for far, case in same[: max(limit, MOST_DESCRIBED)]]
    near.sort(key=lambda pair: (pair[0], pair[1].id))
    rows = [_row(_outcome(case)) for _, case in near[:limit]]
    errors = sorted(abs(one["error"]) for row in rows for one in row["compared"] if one["error"] is not None)
    return {"cases": rows, "median_absolute_error": errors[len(errors) // 2] if errors else None}


def accuracy(body: Body) -> dict[str, object]:
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
    from vramwise.accuracy.cases import Case, case_files, read_cases

    folder = next((place for place in PLACES if place.is_dir()), None)
    if folder is None:
        raise UsageError("this installation has no measured cases: vramwise accuracy FILE takes those of a file")
    return tuple(one for file in case_files([folder]) for one in read_cases(file) if isinstance(one, Case))


@cache
def _scenarios() -> dict[str, Scenario | None]:
    return {case.id: _read(case) for case in _cases()}


def _scenario(case: Case) -> Scenario | None:
    return _scenarios()[case.id]


def _read(case: Case) -> Scenario | None:
    from vramwise.scenario import Scenario

    try:
        return Scenario.from_dict(case.scenario)
    except VramwiseError:
        return None


_outcomes: dict[str, Outcome] = {}


def _outcome(case: Case) -> Outcome:
    """The case held against its estimate; it is of this program, so it is worked out once."""
    from vramwise.accuracy.comparison import compare
    from vramwise.estimation import estimate

    if case.id not in _outcomes:
        _outcomes[case.id] = compare(case, estimate)
    return _outcomes[case.id]


_WEIGHTS = {"program": 16.0, "method": 4.0, "quantization": 2.0, "checkpointing": 1.0}


def _traits(scenario: Scenario) -> dict[str, Any]:
    """What makes two scenarios alike, as far as they say it by themselves."""
    settings = scenario.settings
    program = getattr(settings, "framework", None) or getattr(settings, "engine", None)
    return {"program": program, **{key: getattr(settings, key, None) for key in _WEIGHTS if key != "program"},
            "gpus": scenario.num_gpus}  # fmt: skip


def _unlike(asked: dict[str, Any], scenario: Scenario) -> float:
    """How unlike a case is: another program counts most, then another method, quantization and number of cards."""
    own = _traits(scenario)
    far = sum(weight for key, weight in _WEIGHTS.items() if own[key] != asked[key])
    return far + min(4.0, abs(log(max(own["gpus"], 1) / max(asked["gpus"], 1))))


def _unlike_size(size: int, case: Case) -> float:
    scenario = _scenario(case)
    try:
        own = _size(scenario) if scenario is not None else 0
    except VramwiseError:
        own = 0
    return min(8.0, 2 * abs(log(max(own, 1) / max(size, 1))))


def _size(scenario: Scenario) -> int:
    from vramwise.estimation import model_of

    return model_of(scenario)[1].num_parameters


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
