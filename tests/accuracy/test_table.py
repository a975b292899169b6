from __future__ import annotations

import math

import pytest
from cases_for_tests import outcome, result

from vramwise.accuracy import Case, compare, tabulate
from vramwise.accuracy.table import nearest_rank, worst_comparisons


def failing(scenario):
    raise KeyError("x")


def test_figures_by_hand():
    # errors −30, −10, +5, +20 %; widths 10, 10, 20, 40 %: +5 (±10) and +20 (±20) reach what was measured
    outcomes = [
        outcome(-30, width_percent=10),
        outcome(-10, width_percent=10),
        outcome(5, width_percent=20),
        outcome(20, width_percent=40),
    ]
    (row,) = tabulate(outcomes).rows
    assert (row.group, row.quantity, row.measured, row.count) == ("vllm", "weights", 4, 4)
    assert row.median_error == pytest.approx(-0.025)  # (−10 + 5) / 2
    assert row.median_absolute_error == pytest.approx(0.15)  # (10 + 20) / 2
    assert row.p90_absolute_error == pytest.approx(0.30)
    assert row.worst.case.id == "vllm-30"
    assert row.coverage == 0.5
    assert row.median_width == pytest.approx(0.15)


def test_a_weighed_table_counts_every_source_once():
    # source A: errors 10, 20, 30 % (median 20, p90 30, none inside); source B: −40 % (inside its ±50)
    outcomes = [outcome(error, source="a/a x") for error in (10, 20, 30)]
    outcomes.append(outcome(-40, source="b/b", width_percent=100))
    (plain,) = tabulate(outcomes).rows
    assert (plain.median_error, plain.median_absolute_error) == (pytest.approx(0.15), pytest.approx(0.25))
    assert plain.coverage == 0.25
    (weighed,) = tabulate(outcomes, weigh_by_source=True).rows
    assert weighed.median_error == pytest.approx(-0.10)  # of 20 and −40
    assert weighed.median_absolute_error == pytest.approx(0.30)  # of 20 and 40
    assert weighed.p90_absolute_error == pytest.approx(0.35)  # of 30 and 40
    assert weighed.coverage == 0.5  # of 0 and 1
    assert weighed.median_width == pytest.approx(0.5)  # of 0 and 1
    assert (weighed.count, weighed.worst.error) == (4, pytest.approx(-0.4))


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (2, 2), (9, 9), (10, 9), (11, 10), (20, 18), (100, 90)])
def test_the_90th_percentile_is_an_error_that_occurred(n, rank):
    assert nearest_rank(list(range(n, 0, -1))) == rank


def test_an_infinite_error_sorts_last():
    nothing = Case("zero", {"task": "serve", "serve": {"engine": "vllm"}}, {"weights": 0})
    outcomes = [outcome(10), outcome(20), compare(nothing, lambda s: result(weights=1))]
    (row,) = tabulate(outcomes).rows
    assert row.median_error == pytest.approx(0.2)
    assert row.worst.error == math.inf
    assert row.p90_absolute_error == math.inf


def test_rows_come_largest_group_first_and_quantities_in_the_results_order():
    outcomes = [
        outcome(1, engine="sglang"),
        outcome(1, quantity="nvidia_smi"),
        outcome(1, quantity="weights"),
        outcome(1, quantity="kv_cache_bytes"),
    ]
    assert [(row.group, row.quantity) for row in tabulate(outcomes).rows] == [
        ("vllm", "weights"),
        ("vllm", "kv_cache_bytes"),
        ("vllm", "nvidia_smi"),
        ("sglang", "weights"),
    ]


def test_grouping_by_source_and_by_how_much_is_specified():
    outcomes = [
        outcome(1, source="a/b x"),
        outcome(2, source="a/b y"),
        outcome(3, source="c/d", specified="full"),
    ]
    assert [(row.group, row.count) for row in tabulate(outcomes, by="source").rows] == [
        ("a/b", 2),
        ("c/d", 1),
    ]
    rows = tabulate(outcomes, by="specified").rows
    assert [(row.group, row.count) for row in rows] == [("not stated", 2), ("full", 1)]


def test_missing_and_failed_values_stay_in_the_count():
    scenario = {"task": "serve", "serve": {"engine": "vllm"}}
    without = compare(Case("m", scenario, {"weights": 1, "strange": 1}), lambda s: result())
    failed = compare(Case("f", scenario, {"weights": 1, "oom": True}), failing)
    table = tabulate([outcome(0), without, failed])
    weights, strange = table.rows
    assert (weights.measured, weights.count, weights.missing, weights.failed) == (3, 1, 1, 1)
    assert (strange.quantity, strange.measured, strange.count, strange.missing) == ("strange", 1, 0, 1)
    assert strange.median_error is strange.coverage is strange.worst is None
    (oom,) = table.oom_rows
    assert (oom.measured, oom.count, oom.failed) == (1, 0, 1)
    (failures,) = table.failures
    assert (failures.type, failures.count, failures.case.id, failures.message) == ("KeyError", 1, "f", "'x'")


def test_verdicts_are_counted_apart():
    def verdict(measured, expected):
        scenario = {"task": "train", "train": {"framework": "deepspeed"}}
        return compare(Case("o", scenario, {"oom": measured}), lambda s: result(oom=expected))

    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    table = tabulate([verdict(*pair) for pair in pairs])
    assert table.rows == ()
    (row,) = table.oom_rows
    assert (row.group, row.count, row.correct) == ("deepspeed", 5, 2)
    assert (len(row.false_fits), len(row.false_ooms)) == (2, 1)
    assert all(oom.measured for oom in row.false_fits)


def test_the_worst_comparisons_come_by_absolute_error():
    outcomes = [outcome(5), outcome(-50), outcome(30)]
    assert [c.case.id for c in worst_comparisons(outcomes, 2)] == ["vllm-50", "vllm30"]
