from __future__ import annotations

import math

import pytest
from cases_for_tests import result

from vramwise.accuracy import Case, compare
from vramwise.errors import UnsupportedModelError
from vramwise.records import replace
from vramwise.result import Node, Phase, Quantity


def a_case(measured, **changes) -> Case:
    return Case("a", {"model": "m"}, measured, **changes)


def only_comparison(case, **quantities):
    (comparison,) = compare(case, lambda scenario: result(**quantities)).comparisons
    return comparison


def test_an_estimate_that_is_too_low_has_a_negative_error():
    comparison = only_comparison(a_case({"weights": 200}), weights=Quantity(100, 150, 190))
    assert comparison.error == -0.25
    assert comparison.width == 0.45
    assert not comparison.in_interval


def test_the_scenario_is_what_gets_estimated():
    seen = []
    compare(a_case({"weights": 1}), lambda scenario: seen.append(scenario) or result(weights=1))
    assert seen == [{"model": "m"}]


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [(90, 95, True), (90, 94.9, False), (105, 110, True), (105.1, 110, False), (100, 100, True)],
)
def test_a_printed_value_is_inside_when_its_rounding_meets_the_interval(low, high, inside):
    case = a_case({"weights": 100}, rounding={"weights": 5})
    assert only_comparison(case, weights=Quantity(low, low, high)).in_interval is inside


def test_nothing_measured():
    nothing = a_case({"kv_cache_bytes": 0})
    assert only_comparison(nothing, kv_cache_bytes=0).error == 0
    assert only_comparison(nothing, kv_cache_bytes=5).error == math.inf
    assert only_comparison(nothing, kv_cache_bytes=Quantity(0, 0, 5)).width == math.inf


def test_less_than_nothing_measured():
    """A shortage that an engine logs is an empty cache; errors count in units of what is logged."""
    comparison = only_comparison(a_case({"kv_cache_bytes": -100}), kv_cache_bytes=Quantity(0, 20, 40))
    assert comparison.error == 0.2
    assert comparison.width == 0.4
    assert comparison.in_interval


def test_the_rigs_floor_is_added_to_nvidia_smi_alone():
    case = a_case({"nvidia_smi": 120, "peak_allocated": 100}, rig_floor_bytes=20)
    interval = Quantity(90, 100, 110)
    smi, allocated = compare(case, lambda s: result(nvidia_smi=interval, peak_allocated=interval)).comparisons
    assert (smi.low, smi.expected, smi.high, smi.error) == (110, 120, 130, 0)
    assert (allocated.low, allocated.expected, allocated.high) == (90, 100, 110)


@pytest.mark.parametrize(
    ("measured", "expected", "false_fit", "false_oom"),
    [
        (True, True, False, False),
        (False, False, False, False),
        (True, False, True, False),
        (False, True, False, True),
    ],
)
def test_out_of_memory_is_right_or_wrong_in_two_ways(measured, expected, false_fit, false_oom):
    outcome = compare(a_case({"oom": measured}), lambda s: result(oom=expected))
    assert outcome.comparisons == ()
    assert (outcome.oom.false_fit, outcome.oom.false_oom) == (false_fit, false_oom)


def test_a_run_on_a_cpu_is_held_against_tensors_alone():
    """No context, no work spaces and no counters of a card are there."""
    nodes = [Node("weights", 70, "exact"), Node("library workspaces", 20, "exact"), Node("CUDA context", 10, "exact")]
    phase = Phase("forward", Node("forward", 100, "exact", children=tuple(nodes)))
    case = a_case({"peak_allocated": 70, "params": 7, "nvidia_smi": 70}, extra={"device": "cpu"})
    estimated = replace(result(peak_allocated=100, params=7, nvidia_smi=100), phases=(phase,))
    outcome = compare(case, lambda s: estimated)
    assert {one.quantity: one.expected for one in outcome.comparisons} == {"peak_allocated": 70, "params": 7}
    assert outcome.missing == ("nvidia_smi",)
    without = compare(replace(case, measured={"params": 7}), lambda s: estimated)
    assert [one.quantity for one in without.comparisons] == ["params"]


def test_what_the_estimate_lacks_is_missing():
    outcome = compare(a_case({"weights": 1, "peak_active": 2, "oom": True}), lambda s: result(weights=1))
    assert outcome.missing == ("peak_active", "oom")
    assert len(outcome.comparisons) == 1


@pytest.mark.parametrize("error", [UnsupportedModelError("not yet"), KeyError("x"), RecursionError("deep")])
def test_an_estimate_that_fails_is_kept_by_type(error):
    def estimate(scenario):
        raise error

    outcome = compare(a_case({"weights": 1}), estimate)
    assert (outcome.failure.type, outcome.failure.message) == (type(error).__name__, str(error))
    assert outcome.comparisons == outcome.missing == ()
