from __future__ import annotations

import json

import pytest
from cases_for_tests import case, outcome, result, write_cases

from vramwise.accuracy import Report, judge, tabulate
from vramwise.accuracy.table import worst_comparisons
from vramwise.accuracy.text import lines, percent
from vramwise.errors import UnsupportedModelError
from vramwise.result import Quantity


def estimate(scenario):
    if scenario["model"] == "unknown":
        raise UnsupportedModelError("the family of\nunknown is not described yet")
    return result(weights=Quantity(80, 90, 120), oom=False)


@pytest.fixture
def cases(tmp_path):
    serve = {"task": "serve", "serve": {"engine": "vllm"}}
    return write_cases(
        tmp_path / "c.jsonl",
        case("a"),
        case("b", measured={"weights": 200, "non_torch": 5}),
        "broken",
        case("c", measured={"oom": True}),
        case("d", scenario={"model": "unknown", **serve}),
    )


def test_the_json_holds_plain_fractions(cases):
    report = judge([cases], estimate, worst=1)
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["schema"] == 1
    assert data["cases"] == 4
    assert data["rows"] == [
        {
            "group": "vllm",
            "quantity": "weights",
            "measured": 3,
            "count": 2,
            "missing": 0,
            "failed": 1,
            "median_error": pytest.approx(-0.325),  # −10 % and −55 %
            "median_absolute_error": pytest.approx(0.325),
            "p90_absolute_error": pytest.approx(0.55),
            "worst_error": pytest.approx(-0.55),
            "worst_id": "b",
            "coverage": 0.5,
            "above": 0.5,
            "median_width": pytest.approx(0.3),  # 40/100 and 40/200
        },
        {
            "group": "vllm",
            "quantity": "non_torch",
            "measured": 1,
            "count": 0,
            "missing": 1,
            "failed": 0,
            "median_error": None,
            "median_absolute_error": None,
            "p90_absolute_error": None,
            "worst_error": None,
            "worst_id": None,
            "coverage": None,
            "above": None,
            "median_width": None,
        },
    ]
    assert data["oom"] == [
        {
            "group": "vllm",
            "measured": 1,
            "count": 1,
            "missing": 0,
            "failed": 0,
            "correct": 0,
            "accuracy": 0,
            "false_fits": 1,
            "false_fit_ids": ["c"],
            "false_ooms": 0,
            "false_oom_ids": [],
        }
    ]
    (error,) = data["errors"]
    assert (error["type"], error["count"], error["example"]["id"]) == ("UnsupportedModelError", 1, "d")
    assert [(line["line"], line["file"]) for line in data["unusable"]] == [(3, str(cases))]
    assert [(worst["id"], worst["measured"], worst["expected"]) for worst in data["worst"]] == [("b", 200, 90)]


def test_an_infinite_error_is_null_in_json(tmp_path):
    path = write_cases(tmp_path / "c.jsonl", case(measured={"weights": 0}))
    data = judge([path], estimate, worst=1).to_dict()
    assert data["rows"][0]["worst_error"] is data["worst"][0]["error"] is None
    assert json.dumps(data, allow_nan=False)


def test_what_a_person_reads(cases):
    text = lines(judge([cases], estimate, worst=1), width=250)
    assert text == [
        "engine   quantity      n   median   |median|   |p90|   worst   in interval   above    width",
        "vllm     weights     2/3    −32.5       32.5    55.0   −55.0          50 %    50 %   30.0 %",
        "vllm     non_torch   0/1        –          –       –       –             –       –        –",
        "",
        "engine   verdict   n   correct   false fits   false OOMs",
        "vllm     oom       1     0.0 %            1            0",
        "",
        "4 cases; error = (estimate − measured) / measured, in %",
        "missing: the estimate lacks 1 of the measured values: non_torch 1",
        "not estimated: 1 case",
        "  UnsupportedModelError 1, e.g. d: the family of unknown is not described yet",
        "unusable: 1 line",
        f"  {cases} line 3: not JSON: Expecting value (column 1)",
        "",
        "worst",
        "  −55.0 %  weights  b",
        "    vllm: measured 200 B, estimated 90 B (80 – 120 B)",
        "false fit  vllm  c",
    ]


def test_every_line_fits_the_narrowest_screen():
    outcomes = [
        outcome(
            error,
            engine=engine,
            quantity=quantity,
            source="a-long-owner/a-repository-with-a-long-name/" + "x" * 90,
        )
        for engine in ("tensorrt-llm", "transformers")
        for quantity in ("recurrent_state_bytes", "kv_cache_tokens")
        for error in (-99, 900, 123456)
    ]
    for by in ("engine", "source", "specified"):
        report = Report(tuple(outcomes), (), tabulate(outcomes, by), tuple(worst_comparisons(outcomes, 3)))
        for width in (80, 100, 200):
            text = lines(report, width, by)
            assert max(map(len, text)) <= width
            assert "recurrent_state_bytes" in "".join(text)


def test_only_the_first_unusable_lines_are_listed(tmp_path):
    text = lines(judge([write_cases(tmp_path / "c.jsonl", *["x"] * 30)], estimate))
    assert "unusable: 30 lines" in text
    assert text[-1] == "  and 20 more (--json lists all)"
    ten = lines(judge([write_cases(tmp_path / "c.jsonl", *["x"] * 10)], estimate))
    assert "more" not in ten[-1]


def test_a_file_without_cases(tmp_path):
    assert lines(judge([write_cases(tmp_path / "c.jsonl")], estimate)) == [
        "0 cases; error = (estimate − measured) / measured, in %"
    ]


def test_escape_sequences_in_a_file_do_not_reach_the_terminal(tmp_path):
    path = write_cases(tmp_path / "c.jsonl", case("a\x1b[31m\ud800", measured={"weights": 1}))
    text = "\n".join(lines(judge([path], estimate, worst=1)))
    assert "\x1b" not in text
    text.encode("utf-8")


def test_progress_counts_every_case(cases):
    seen = []

    def watched(all_of_them):
        for done, one in enumerate(all_of_them, 1):
            yield one
            seen.append((done, len(all_of_them)))

    judge([cases], estimate, watched=watched)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("value", "signed", "text"),
    [
        (0.1234, False, "12.3"),
        (0.1234, True, "+12.3"),
        (-0.1234, True, "−12.3"),
        (-0.0001, True, "0.0"),
        (0.0, True, "0.0"),
        (12.345, True, "+1,234"),
        (float("inf"), True, "+∞"),
        (None, False, "–"),
    ],
)
def test_percentages(value, signed, text):
    assert percent(value, signed=signed) == text
