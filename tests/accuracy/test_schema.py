from __future__ import annotations

import json

import pytest
from cases_for_tests import case, write_cases
from jsonschema import Draft202012Validator

from vramwise.accuracy import Case, read_cases
from vramwise.accuracy.cases import FIELDS
from vramwise.accuracy.schema import case_schema
from vramwise.scenario import scenario_schema


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(case_schema())
    return Draft202012Validator(case_schema())


def test_it_describes_every_field():
    assert set(case_schema()["properties"]) == FIELDS


def test_the_scenario_is_the_scenarios_own_schema():
    assert case_schema()["properties"]["scenario"]["properties"] == scenario_schema()["properties"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"measured": {"oom": True, "weights": 1.5, "peak_active": 3}},
        {"precision_bytes": {"weights": 0.5}, "notes": "one", "unstated": ["x"], "licence": "MIT"},
        {"id": " "},
        {"measured": {}},
        {"measured": {"oom": 1}},
        {"measured": {"weights": True}},
        {"measured": {"weights": "1"}},
        {"precision": {"weights": -1}},
        {"confidence": "sure"},
        {"rig_floor_bytes": -1},
        {"closed_budget": 1},
        {"extra": []},
    ],
)
def test_schema_and_reader_agree(validator, tmp_path, changes):
    (read,) = read_cases(write_cases(tmp_path / "c.jsonl", case(**changes)))
    assert validator.is_valid(case(**changes)) is isinstance(read, Case)


def test_the_schema_is_plain_json():
    assert json.loads(json.dumps(case_schema())) == case_schema()
