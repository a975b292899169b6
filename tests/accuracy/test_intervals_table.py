"""The table of intervals: made by its script alone, and holding what it promises on sources that were left out."""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from vramwise.intervals import Reach

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import build_intervals as tool  # noqa: E402

LANDED = Path(__file__).with_name("coverage.csv")
SAMPLED = 12
ASKED = SAMPLED if settings.get_current_profile_name() == "thorough" else 4


@pytest.fixture(scope="module")
def scores() -> list[tool.Score]:
    return tool.read_scores()


@pytest.fixture(scope="module")
def tables(scores: list[tool.Score]) -> dict[str, dict[str, Reach]]:
    return tool.without_each(scores)


def test_a_source_is_left_out_as_if_it_had_never_been_there(scores, tables):
    source = random.Random(len(scores)).choice(scores).source
    rest = tool.reaches([score for score in scores if score.source != source])
    assert {**tables[tool.WHOLE], **tables[source]} == rest


def test_the_script_makes_the_table_again(scores, tables):
    for path, rows in tool.files_of(scores, tables).items():
        with path.open(newline="", encoding="utf-8") as file:
            assert list(csv.reader(file)) == rows, "python tools/build_intervals.py --from-scores"


def test_scores_are_those_of_todays_estimates(scores):
    """Of a few cases, others whenever cases are added: the script takes minutes for all of them."""
    cases = {case.id: case for case in tool.measured_cases()}
    ids = sorted({score.id for score in scores})
    for id_ in random.Random(len(ids)).sample(ids, SAMPLED)[:ASKED]:
        now = {(one.quantity, one.cell): one.expected for one in tool.scores_of(cases[id_])}
        then = {(one.quantity, one.cell): one.expected for one in scores if one.id == id_}
        assert now == then, f"{id_}: python tools/build_intervals.py"


def test_every_case_that_was_measured_has_its_scores(scores):
    assert {score.id for score in scores} <= {case.id for case in tool.measured_cases()}
    assert {score.cell for score in scores} <= set(tool.KINDS)


PROMISED = 0.90


def test_coverage_on_left_out_sources_never_falls(scores, tables):
    """coverage.csv holds what landed last: raise a row when the table got better, never lower one.

    The share of all counters never falls. A kind of them keeps what landed, or the share that an interval promises:
    what it holds beyond is width that a better estimate takes away, and the counter of one source at its edge.
    """
    landed = {row["row"]: float(row["inside"]) for row in csv.DictReader(LANDED.read_text("utf-8").splitlines())}
    now = {name: inside for name, _, _, inside, _, _ in tool.coverage(scores, tables)} | tool.coverage_by_kind(
        scores, tables
    )
    least = {name: share if name == "all" else min(share, PROMISED) for name, share in landed.items()}
    assert {name: now.get(name, 0.0) for name in least if now.get(name, 0.0) < least[name]} == {}


def _score(source: str, missed: float, cell: str = "vLLM need") -> tool.Score:
    return tool.Score(f"{source} {missed}", source, "vllm", "", "weights", cell, 100 + missed, 0, 100, 0, 0, 100, 100)


def test_the_reach_is_the_largest_miss_but_a_twentieth_to_each_side():
    scores = [_score(f"source {n}", n) for n in range(-50, 51)]
    assert tool.reaches(scores)["vLLM need"] == Reach(0.46, 0.46)  # of 102, with the source that is not there yet


def test_few_sources_reach_as_far_as_anything_seen():
    scores = [_score(f"source {n}", n) for n in (-3, -1, 0, 0, 2)]
    assert tool.reaches(scores)["vLLM need"] == Reach(0.03, 0.03)


def test_many_cases_of_one_source_do_not_outvote_the_others():
    alike = [_score("campaign", 0.0) for _ in range(1000)]
    others = [_score(f"source {n}", 20.0) for n in range(4)]
    assert tool.reaches(alike + others)["vLLM need"].above == 0.2


def test_a_cell_with_few_sources_borrows_from_its_kind():
    known = [_score(f"source {n}", 30.0 * (n % 2), "vLLM activation, V0") for n in range(20)]
    new = [_score("other", 1.0, "vLLM activation, V1")]
    assert tool.reaches(known + new)["vLLM activation, V1"].above == 0.3


def test_what_was_left_open_is_no_miss():
    inside = tool.Score("a", "b", "vllm", "", "weights", "vLLM need", 130, 0, 100, 0, 40, 100, 100)
    beyond = tool.Score("a", "b", "vllm", "", "weights", "vLLM need", 150, 0, 100, 0, 40, 100, 100)
    assert inside.signed == 0.0
    assert beyond.signed == pytest.approx(0.3)  # 50² = 40² + 30²
    assert beyond.ends(Reach(0, 0.3)) == (100, pytest.approx(150))
