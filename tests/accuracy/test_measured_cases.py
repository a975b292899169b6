"""The project's own measured cases: every line is a case with a source and a scenario that is understood."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from vramwise.accuracy import Case, case_files, read_cases
from vramwise.accuracy.schema import case_schema
from vramwise.result import QUANTITIES
from vramwise.scenario import Scenario

FOLDER = Path(__file__).parents[2] / "benchmarks" / "cases"
COUNTS = {
    "diffusers.jsonl": (7, 9),
    "llamacpp-logs.jsonl": (49, 205),
    "llamacpp.jsonl": (159, 477),
    "serving-2026.jsonl": (66, 267),
    "serving-community.jsonl": (19, 21),
    "serving-logs.jsonl": (89, 378),
    "serving-mlx.jsonl": (23, 23),
    "serving-predicted.jsonl": (88, 250),
    "serving-threads.jsonl": (17, 41),
    "serving-unseen.jsonl": (172, 536),
    "serving-vllm-2026.jsonl": (37, 120),
    "serving-vllm019.jsonl": (38, 292),
    "serving.jsonl": (160, 395),
    "throughput.jsonl": (157, 157),
    "training-2026.jsonl": (154, 311),
    "training-examples.jsonl": (42, 43),
    "training-fitcheck.jsonl": (35, 105),
    "training-fms.jsonl": (200, 332),
    "training-frameworks.jsonl": (81, 81),
    "training-guides.jsonl": (90, 118),
    "training-predicted.jsonl": (224, 323),
    "training-threads.jsonl": (86, 89),
    "training-tuners.jsonl": (23, 23),
    "training-unseen.jsonl": (73, 128),
    "training-verdicts.jsonl": (32, 32),
    "training.jsonl": (435, 490),
}
PRINTED_IN_FULL = {"oom", "kv_cache_blocks", "kv_cache_tokens", "max_seq"}


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Case]]:
    return {file.name: list(read_cases(file)) for file in case_files([FOLDER])}


def test_every_line_is_a_case(cases):
    assert [line for lines in cases.values() for line in lines if not isinstance(line, Case)] == []
    counted = {name: (len(lines), sum(len(case.measured) for case in lines)) for name, lines in cases.items()}
    assert counted == COUNTS


@pytest.mark.parametrize("name", COUNTS)
def test_every_scenario_is_understood(cases, name):
    for case in cases[name]:
        scenario = Scenario.from_dict(case.scenario)
        settings = scenario.serve if scenario.task == "load" else getattr(scenario, scenario.task)
        assert case.engine == getattr(settings, "framework" if scenario.task == "train" else "engine")


def test_every_case_says_where_its_numbers_come_from(cases):
    for case in (case for lines in cases.values() for case in lines):
        assert case.source
        assert case.quote
        assert case.confidence
        assert set(case.measured) <= set(QUANTITIES)
        assert set(case.measured) - set(case.rounding) <= PRINTED_IN_FULL


def test_ids_are_unique_over_all_files(cases):
    ids = [case.id for lines in cases.values() for case in lines]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", COUNTS)
def test_every_line_is_plain_json_that_the_schema_describes(name):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    validator = Draft202012Validator(case_schema())
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        assert list(validator.iter_errors(json.loads(line, parse_constant=refuse))) == []


def test_no_measurement_is_there_twice(cases):
    """Two documents that print the same sizes of the same model to the last digit tell of one run."""
    said: dict[tuple[object, ...], set[str]] = {}
    for case in (one for many in cases.values() for one in many):
        sizes = tuple(sorted((name, value) for name, value in case.measured.items() if name != "oom"))
        if len(sizes) > 3:
            said.setdefault((str(case.scenario["model"]), sizes), set()).add(case.source.split(":")[0].split(" ")[0])
    assert [sources for sources in said.values() if len(sources) > 1] == []
