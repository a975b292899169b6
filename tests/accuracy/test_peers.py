"""benchmarks/peers: other tools' recorded answers on the measured training cases."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

PEERS = Path(__file__).parent.parent.parent / "benchmarks" / "peers"


@pytest.fixture(scope="module")
def compare() -> Any:
    sys.path.insert(0, str(PEERS))
    try:
        import compare

        yield compare
    finally:
        sys.path.remove(str(PEERS))
        for name in ("compare", "adapters"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def table(compare: Any) -> dict[str, dict[str, float | None]]:
    return dict(compare.answers({}))  # recorded answers only


def test_every_tool_has_an_answer_recorded_for_every_judged_case(compare: Any, table: Any) -> None:
    cases = {case.id for case, _ in compare.judged_cases()}
    assert len(cases) >= 90
    assert set(table) == {"vramwise", *compare.VERSIONS, *compare.RULES}
    assert all(set(found) == cases for found in table.values())


def test_vramwise_is_closest_in_every_group(compare: Any, table: Any) -> None:
    pairs = compare.judged_cases()
    for group in compare.GROUPS:
        inside = [case for case, question in pairs if compare.group_of(case, question) == group]
        medians = {
            name: statistics.median(abs(found[case.id] / compare.measured(case)[1] - 1) for case in inside)
            for name, found in table.items()
        }
        assert min(medians, key=medians.__getitem__) == "vramwise", (group, medians)
        assert medians["vramwise"] < 0.05
    assert len(list(compare.rows_of(table))) == 1 + len(table)


def test_the_page_shows_todays_table(compare: Any, table: Any) -> None:
    page = (PEERS / "README.md").read_text("utf-8")
    assert "\n".join(compare.lines_of(table)) in page


@pytest.mark.oracle
def test_what_is_recorded_of_accelerate_is_what_it_returns(compare: Any, table: Any) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    for case, question in compare.judged_cases()[::30]:
        assert compare.accelerate_training(question) == pytest.approx(table["accelerate"][case.id], rel=1e-6), case.id


@pytest.fixture(scope="module")
def serving() -> Any:
    sys.path.insert(0, str(PEERS))
    try:
        import serving

        yield serving
    finally:
        sys.path.remove(str(PEERS))
        for name in ("serving", "serving_tools"):
            sys.modules.pop(name, None)


def test_recorded_answers_on_logs_that_a_tool_did_not_measure_are_further_away(serving: Any) -> None:
    found = serving.errors()
    asked = {(tool.name, counter) for tool in serving.TOOLS for counter in tool.counters}
    assert {place[:2] for place in found} == asked
    for (name, counter, group), gaps in found.items():
        assert len(gaps) >= 30
        if group == serving.OTHER:
            its, ours = (statistics.median(map(abs, one)) for one in zip(*gaps, strict=True))
            assert ours < its, (name, counter)
    rows = map(json.loads, serving.RECORDED.read_text("utf-8").splitlines())
    assert {row["version"] for row in rows} == {tool.version for tool in serving.TOOLS}
    page = (PEERS / "README.md").read_text("utf-8")
    assert "\n".join(serving.lines_of(found)) in page
