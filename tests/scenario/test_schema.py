from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from vramwise.errors import ScenarioError
from vramwise.scenario import Scenario, scenario_schema
from vramwise.scenario.definition import KINDS, TABLES
from vramwise.scenario.nested import nested_tables

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"
VALIDATOR = Draft202012Validator(scenario_schema())


def test_the_schema_is_a_schema_with_every_key():
    schema = scenario_schema()
    Draft202012Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)
    for name, cls in TABLES.items():
        assert set(schema["properties"][name]["properties"]) == {*KINDS[cls], *nested_tables(cls)}
        assert all(p["description"] for p in schema["properties"][name]["properties"].values())


def test_every_measured_scenario_is_valid():
    count = 0
    for file in sorted(CASES.glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            data = json.loads(line)["scenario"]
            assert VALIDATOR.is_valid(data), data
            assert VALIDATOR.is_valid(Scenario.from_dict(data).to_dict())
            count += 1
    assert count >= 756


@pytest.mark.parametrize(
    "data",
    [
        {"model": "m"},
        {"task": "load"},
        {"model": "", "task": "load"},
        {"model": "m", "task": "fly"},
        {"model": "m", "task": "train", "train": {"micro_batch_size": "two"}},
        {"model": "m", "task": "train", "train": {"micro_batch_size": None}},
        {"model": "m", "task": "train", "train": {"nope": 1}},
        {"model": "m", "task": "train", "serve": {}},
        {"model": "m", "task": "load", "generate": {}},
        {"model": "m", "task": "serve", "serve": {"gpu_memory_utilization": 0}},
        {"model": "m", "task": "serve", "serve": {"speculative": {"tokens": 1}}},
        {"model": "m", "task": "train", "train": {"zero": {"stage": 4}}},
        {"model": "m", "task": "train", "train": {"zero": {"stge": 3}}},
        {"model": "m", "task": "train", "train": {"zero": 3}},
        {"model": "m", "task": "train", "train": {"fsdp": {"sharding_strategy": "zz"}}},
    ],
)
def test_schema_and_reader_refuse_the_same(data):
    assert not VALIDATOR.is_valid(data)
    with pytest.raises(ScenarioError):
        Scenario.from_dict(data)


values = st.none() | st.booleans() | st.integers(-3, 5) | st.integers() | st.sampled_from(["none", "fp8", "x", ""])
keyed = st.sampled_from([(name, key) for name, cls in TABLES.items() for key in KINDS[cls]])


@given(keyed, values)
def test_what_the_schema_refuses_the_reader_refuses(key, value):
    """The reader may refuse more (contradictions); it takes more only in other letter case and list text."""
    name, key = key
    data = {"model": "m", "task": name, name: {key: value}}
    if VALIDATOR.is_valid(data):
        return
    with pytest.raises(ScenarioError):
        Scenario.from_dict(data)
