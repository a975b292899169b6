"""What a line of judged.jsonl says of a case is all that a table of errors is made of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import judged_cases
from vramwise.accuracy.cases import Case, read_cases
from vramwise.accuracy.comparison import compare
from vramwise.estimation import estimate

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"


def estimated(case: Case) -> judged_cases.Line:
    """The line of a case after it was written and read."""
    line: judged_cases.Line = json.loads(json.dumps(judged_cases.line_of(compare(case, estimate))))
    return line


@pytest.mark.parametrize("file", ["serving-logs", "training-threads", "diffusers"])
def test_an_outcome_is_the_same_from_its_line(file: str) -> None:
    cases = list(read_cases(CASES / f"{file}.jsonl"))[:4]
    for case in cases:
        assert judged_cases.outcome_of(case, estimated(case)) == compare(case, estimate)


def test_a_case_that_changed_is_not_taken_from_its_line() -> None:
    case = next(iter(read_cases(CASES / "serving-logs.jsonl")))
    name = f"serving-logs/{case.id}"
    found = {name: estimated(case)}
    judged = judged_cases.judging(found, is_held=True)
    assert judged(case, estimate) == compare(case, estimate)
    found[name]["of"] += 1
    with pytest.raises(AssertionError, match=r"python tests/test_readme\.py"):
        judged(case, estimate)


def test_what_is_held_and_has_its_turn_is_estimated_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(iter(read_cases(CASES / "serving-logs.jsonl")))
    line = estimated(case)
    stale = {**line, "said": {quantity: [0, 0, 0] for quantity in line["said"]}}
    monkeypatch.setattr(judged_cases, "_lines", lambda: {f"serving-logs/{case.id}": stale})
    monkeypatch.setattr(judged_cases, "has_turn", lambda *_: True)
    with pytest.raises(AssertionError, match=r"python tests/test_readme\.py"):
        judged_cases.judging({}, is_held=True)(case, estimate)
