from __future__ import annotations

import json
import math
import tracemalloc

import pytest
from cases_for_tests import case, write_cases
from hypothesis import given
from hypothesis import strategies as st

from vramwise.accuracy import Case, UnusableLine, case_files, read_cases
from vramwise.errors import SourceError, UsageError


def only_reason(path) -> str:
    (line,) = read_cases(path)
    assert isinstance(line, UnusableLine)
    return line.reason


def test_a_case_keeps_every_field(tmp_path):
    full = case(
        "full",
        measured={"weights": 100, "max_concurrency": 2.5, "oom": False},
        precision_bytes={"weights": 5},
        precision={"max_concurrency": 0.005},
        quote="took 100",
        confidence="high",
        specified="most",
        unstated=["attention"],
        closed_budget=True,
        rig="a harness",
        rig_floor_bytes=7,
        engine_version="0.8",
        extra={"flag": 1},
        notes=["one", "two"],
    )
    (read,) = read_cases(write_cases(tmp_path / "c.jsonl", full))
    assert read == Case(
        id="full",
        scenario=full["scenario"],
        measured=full["measured"],
        rounding={"weights": 5, "max_concurrency": 0.005},
        source="owner/repository issue #1",
        quote="took 100",
        confidence="high",
        specified="most",
        unstated=("attention",),
        closed_budget=True,
        rig="a harness",
        rig_floor_bytes=7,
        engine_version="0.8",
        extra={"flag": 1},
        notes=("one", "two"),
        file=str(tmp_path / "c.jsonl"),
        line=1,
    )


def test_a_note_may_be_one_text(tmp_path):
    (read,) = read_cases(write_cases(tmp_path / "c.jsonl", case(notes="only one")))
    assert read.notes == ("only one",)


def test_bad_lines_are_named_and_the_rest_is_read(tmp_path):
    path = write_cases(tmp_path / "c.jsonl", case("a"), '{"id": "b"', "", "[1]", case("c"))
    lines = list(read_cases(path))
    assert [line.id for line in lines if isinstance(line, Case)] == ["a", "c"]
    assert [(line.line, line.reason) for line in lines if isinstance(line, UnusableLine)] == [
        (2, "not JSON: Expecting ',' delimiter (column 11)"),
        (4, "expected a JSON object, got a list"),
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": ""}, "id: expected text, got an empty one"),
        ({"id": 3}, "id: expected text, got 3"),
        ({"scenario": "m"}, 'scenario: expected a table, got "m"'),
        ({"measured": {}}, "measured: expected at least one quantity, got an empty table"),
        ({"precision_bytes": {"weights": -1}}, "precision_bytes.weights: expected a number ≥ 0, got -1"),
        ({"rig_floor_bytes": float("inf")}, "rig_floor_bytes: expected a whole number ≥ 0, got inf"),
        ({"measured": {"weights": True}}, "measured.weights: expected a number, got true"),
        ({"measured": {"weights": "14.99 GiB"}}, 'measured.weights: expected a number, got "14.99 GiB"'),
        ({"measured": {"weights": None}}, "measured.weights: expected a number, got null"),
        (
            {"measured": {"weights": 10**400}},
            "measured.weights: expected a number, got a number beyond every memory",
        ),
        ({"measured": {"oom": 1}}, "measured.oom: expected true or false, got 1"),
        ({"precision_bytes": {"weights": []}}, "precision_bytes.weights: expected a number ≥ 0, got a list"),
        ({"rig_floor_bytes": 1.5}, "rig_floor_bytes: expected a whole number ≥ 0, got 1.5"),
        ({"confidence": "sure"}, 'confidence: expected high, medium, low; got "sure"'),
        ({"specified": ["full"]}, "specified: expected full, most, poor; got a list"),
        ({"closed_budget": "yes"}, 'closed_budget: expected true or false, got "yes"'),
        ({"unstated": [1]}, "unstated: expected text, got 1"),
        ({"notes": 1}, "notes: expected text or a list of texts, got 1"),
        ({"source": None}, "source: expected text, got null"),
        ({"schema": 2}, '"schema" is 2, and this version reads 1: record the case again, or upgrade'),
        ({"rig_floor_byte": 1}, 'unknown key "rig_floor_byte"; did you mean rig_floor_bytes?'),
    ],
)
def test_a_wrong_value_is_named(tmp_path, changes, reason):
    assert only_reason(write_cases(tmp_path / "c.jsonl", case(**changes))) == reason


@pytest.mark.parametrize("key", ["id", "scenario", "measured"])
def test_what_a_case_must_have(tmp_path, key):
    without = {name: value for name, value in case().items() if name != key}
    assert only_reason(write_cases(tmp_path / "c.jsonl", without)) == f'"{key}" is missing'


def test_somebodys_own_key_is_passed_over(tmp_path):
    (read,) = read_cases(write_cases(tmp_path / "c.jsonl", case(licence="MIT")))
    assert isinstance(read, Case)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_none(tmp_path, number):
    text = json.dumps(case()).replace('"weights": 100', f'"weights": {number}')
    (line,) = read_cases(write_cases(tmp_path / "c.jsonl", text))
    assert isinstance(line, UnusableLine)
    assert len(line.reason) < 120


def test_a_config_may_hold_infinity_as_transformers_writes_it(tmp_path):
    scenario = {"model": {"time_step_limit": [0.0, float("inf")]}, "task": "load"}
    (read,) = read_cases(write_cases(tmp_path / "c.jsonl", case(scenario=scenario)))
    assert isinstance(read, Case)


def test_an_id_used_twice_counts_once(tmp_path):
    lines = list(read_cases(write_cases(tmp_path / "c.jsonl", case("a"), case("a"))))
    assert isinstance(lines[0], Case)
    assert str(lines[1]) == f'{tmp_path / "c.jsonl"} line 2: id "a" was used in line 1 already'


def test_nesting_without_end(tmp_path):
    assert only_reason(write_cases(tmp_path / "c.jsonl", "[" * 200_000)) == "nested too deeply"


def test_an_empty_file_has_no_cases(tmp_path):
    assert list(read_cases(write_cases(tmp_path / "c.jsonl"))) == []


def test_a_truncated_file(tmp_path):
    path = write_cases(tmp_path / "c.jsonl", case("a"), case("b"))
    path.write_bytes(path.read_bytes()[:-20])
    first, second = read_cases(path)
    assert isinstance(first, Case)
    assert isinstance(second, UnusableLine)


def test_a_byte_order_mark_is_no_error(tmp_path):
    path = write_cases(tmp_path / "c.jsonl", case())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    (read,) = read_cases(path)
    assert isinstance(read, Case)


def test_a_binary_file(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\x00\x01\x02\n\xff\xfe\n")
    assert [str(line.reason) for line in read_cases(path)] == [
        "not JSON: Expecting value (column 1)",
        "not text (UTF-8)",
    ]


def test_a_file_of_nothing_but_bad_lines_is_given_up(tmp_path):
    lines = list(read_cases(write_cases(tmp_path / "c.jsonl", *["x"] * 5000)))
    assert len(lines) == 1001
    assert lines[-1].reason == "none of the first 1,000 lines is a case, the rest was not read"


def test_one_line_of_100_mb_is_skipped_without_holding_it(tmp_path):
    path = tmp_path / "c.jsonl"
    with path.open("wb") as stream:
        stream.write(json.dumps(case("a")).encode() + b"\n")
        for _ in range(100):
            stream.write(b"x" * 10**6)
        stream.write(b"\n" + json.dumps(case("b")).encode())
    tracemalloc.start()
    try:
        first, huge, last = read_cases(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (first.id, huge.line, huge.reason, last.id, last.line) == ("a", 2, "the line is longer than 16 MiB", "b", 3)
    assert peak < 60e6


@given(st.binary(max_size=300))
def test_no_bytes_raise(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "c.jsonl"
    path.write_bytes(data)
    assert all(isinstance(line, UnusableLine) and line.reason for line in read_cases(path))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(["id", "scenario", "measured", "precision_bytes", "source", "notes", "rig_floor_bytes", "extra"])


@given(st.dictionaries(keys, json_values))
def test_no_json_raises_and_what_is_read_is_sound(tmp_path_factory, changes):
    path = write_cases(tmp_path_factory.mktemp("fuzz") / "c.jsonl", case(**changes))
    (read,) = read_cases(path)
    if isinstance(read, Case):
        assert all(math.isfinite(value) for value in read.measured.values())
        assert read.engine
        assert read.source_name


def test_folders_hold_their_jsonl_files_in_order(tmp_path):
    second = write_cases(tmp_path / "b.jsonl", case())
    first = write_cases(tmp_path / "a.jsonl", case())
    write_cases(tmp_path / "README.md")
    assert case_files([tmp_path]) == [first, second]
    assert case_files([first, tmp_path, str(first)]) == [first, second]


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(SourceError, match="no such file or folder"):
        case_files([tmp_path / "missing.jsonl"])
    with pytest.raises(SourceError, match="no such file or folder"):
        case_files(["a\0b"])
    with pytest.raises(UsageError, match=r"no \.jsonl file in this folder"):
        case_files([tmp_path])


@pytest.mark.parametrize(
    ("scenario", "engine"),
    [
        ({"task": "serve", "serve": {"engine": "sglang"}}, "sglang"),
        ({"task": "load", "serve": {"engine": "vllm"}}, "vllm"),
        ({"task": "generate", "generate": {"engine": "transformers"}}, "transformers"),
        ({"task": "train", "train": {"framework": "megatron"}}, "megatron"),
        ({"task": "load"}, "not stated"),
        ({"task": "serve"}, "vllm"),
        ({"task": "train", "train": {"method": "lora"}}, "transformers"),
        ({"task": ["serve"], "serve": {"engine": "vllm"}}, "not stated"),
        ({"task": "train", "train": {"framework": 3}}, "3"),
        ({}, "not stated"),
        ({"task": "train", "train": "x"}, "not stated"),
    ],
)
def test_the_engine_of_a_case(scenario, engine):
    assert Case("a", scenario, {"weights": 1}).engine == engine


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("vllm-project/vllm issue #10517 (comment 2024-12-02)", "vllm-project/vllm"),
        ("pytorch/torchtitan commit 83c879f18 #165 (PR log)", "pytorch/torchtitan"),
        ("public log", "public log"),
        ("public log: ggml CI results log (ggml-org/ci style)", "public log: ggml CI results log"),
        ("", "not stated"),
    ],
)
def test_cases_of_one_repository_share_their_source_name(source, name):
    assert Case("a", {}, {"weights": 1}, source=source).source_name == name
