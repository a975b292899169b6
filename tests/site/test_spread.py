"""From several runs to a value with its interval: Student's t, outliers, resolution, and whether intervals cover."""

from __future__ import annotations

import math
import random

import pytest

from vramwise.site.spread import NORMAL_95, T_95, spread_of

SHIPPED = (50.0, 100.0, 180.0)


def beyond(t, freedom):
    """The share of Student's t above `t`, by Simpson's rule over its density."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
    steps = 2000
    width = t / steps
    inside = sum(
        (1 if i in (0, steps) else 4 if i % 2 else 2) * (1 + (i * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
        for i in range(steps + 1)
    )
    return 0.5 - scale * inside * width / 3


def test_the_quantiles_are_those_of_students_t():
    for freedom, t in enumerate(T_95, 1):
        assert beyond(t, freedom) == pytest.approx(0.05, abs=1e-4)
    assert pytest.approx(0.05, abs=1e-4) == 0.5 * math.erfc(NORMAL_95 / math.sqrt(2))


def test_one_run_takes_half_of_the_shipped_distances_around_its_value():
    found = spread_of([200.0], [1.0], SHIPPED)
    assert (found.low, found.expected, found.high) == (150.0, 200.0, 280.0)


def test_two_runs_that_differ_by_more_widen_it():
    found = spread_of([100.0, 300.0], [1.0, 1.0], SHIPPED)
    assert (found.low, found.expected, found.high) == (100.0, 200.0, 300.0)


def test_the_interval_narrows_with_the_number_of_runs_and_stops_at_the_resolution():
    draw = random.Random(1)
    values = [100 + draw.gauss(0, 5) for _ in range(200)]
    widths = [spread_of(values[:n], [0.5] * n, SHIPPED).high - spread_of(values[:n], [0.5] * n, SHIPPED).low
              for n in (1, 10, 200)]  # fmt: skip
    assert widths[0] > widths[1] > widths[2] > 2 * 1.6 * 4
    same = spread_of([100.0] * 50, [2.0] * 50, SHIPPED)
    assert (same.low, same.high) == (98.0, 102.0)


def test_a_run_far_from_the_others_is_not_used():
    found = spread_of([100.0, 101.0, 99.0, 100.5, 900.0], [0.5] * 5, SHIPPED)
    assert found.left_out == (4,)
    assert found.expected == pytest.approx(100.25)
    assert found.high < 110


def test_of_three_runs_only_one_beyond_the_shipped_spread_is_left_out():
    assert spread_of([100.0, 100.1, 110.0], [0.01] * 3, SHIPPED).left_out == ()
    assert spread_of([100.0, 100.1, 400.0], [0.01] * 3, SHIPPED).left_out == (2,)


def test_nothing_is_below_zero():
    assert spread_of([1.0], [4.0], SHIPPED).low == 0.0


@pytest.mark.parametrize("runs", [1, 2, 3, 5, 8, 12, 30])
@pytest.mark.parametrize("deviation", [2.0, 10.0])
def test_intervals_cover_the_next_run(runs, deviation):
    """Machines differ, their own runs little: after `runs` of them the next one lies inside in 9 of 10 cases."""
    draw = random.Random(runs)
    inside = 0
    for _ in range(1500):
        machine = draw.uniform(70, 150)
        seen = [draw.gauss(machine, deviation) for _ in range(runs)]
        found = spread_of(seen, [0.05] * runs, SHIPPED)
        inside += found.low <= draw.gauss(machine, deviation) <= found.high
    assert inside / 1500 >= 0.87
