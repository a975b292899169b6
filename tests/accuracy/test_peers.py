"""benchmarks/peers: other tools' recorded answers on the measured training cases."""

from __future__ import annotations

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
    compare.tools = lambda script: {}  # recorded answers only
    return dict(compare.answers(None))


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


@pytest.mark.oracle
def test_what_is_recorded_of_accelerate_is_what_it_returns(compare: Any, table: Any) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers")
    for case, question in compare.judged_cases()[::30]:
        assert compare.accelerate_training(question) == pytest.approx(table["accelerate"][case.id], rel=1e-6), case.id
