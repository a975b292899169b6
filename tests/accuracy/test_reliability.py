"""What was said of a run's chance to fit, beside what became of it."""

from __future__ import annotations

import pytest

from vramwise.accuracy import Case
from vramwise.accuracy.comparison import OomComparison
from vramwise.accuracy.reliability import EDGES, reliability_of


def ran(probability: float | None, *, fitted: bool) -> OomComparison:
    return OomComparison(Case("a", {"model": "m"}, {"oom": float(not fitted)}), not fitted, not fitted, probability)


def test_each_run_is_in_the_one_bin_that_begins_at_or_below_what_was_said() -> None:
    said = [*EDGES, 0.049, 0.5001, 0.9499]
    found = reliability_of([ran(probability, fitted=True) for probability in said])
    assert [(one.low, one.high, one.count) for one in found.bins] == [
        (0.0, 0.05, 2), (0.05, 0.25, 1), (0.25, 0.5, 1), (0.5, 0.75, 2), (0.75, 0.95, 2), (0.95, 1.0, 2)
    ]  # fmt: skip


def test_a_bin_says_the_mean_of_what_was_said_and_the_share_that_fitted() -> None:
    found = reliability_of([ran(0.8, fitted=True), ran(0.9, fitted=False), ran(None, fitted=True)])
    (only,) = found.bins
    assert (only.said, only.fitted, found.count) == (pytest.approx(0.85), 0.5, 2)
    assert found.brier == pytest.approx((0.2**2 + 0.9**2) / 2)


def test_of_runs_without_a_probability_nothing_is_said() -> None:
    assert reliability_of([ran(None, fitted=True)]).brier is None
