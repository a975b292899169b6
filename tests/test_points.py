"""Code that runs on many numbers at once gives each of them what it gives it alone."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramwise.intervals import hypotenuse
from vramwise.points.columns import Arrays, Lists
from vramwise.points.expression import ManyNumbers
from vramwise.points.run import Points

numbers = st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 3000)), min_size=1, max_size=80)


def some_code(a, b):
    """Every operation that the code of an answer has."""
    kept = [a * b * 7, -(-a * 3 // 512) * 512, a * a + b, (b - 5) % 64, b * 100 - a]
    most = max(kept, key=lambda one: one * 2 + 1)
    if a * 3 > b * b or b == 17:
        most += b
    third = round(Fraction(7, 3) * most) + round(Fraction(1, 2) * a)
    share = round(most * 1.07) if most >= b else math.ceil(b / 3)
    spread = round(hypotenuse(a * 0.5, b - 3.25, 2.0))
    return [most, third, share, spread, min(a, b, 12), sum([a, b]) // 1, 4]


@pytest.mark.parametrize("columns", [Lists(), Arrays()], ids=["lists", "arrays"])
@given(pairs=numbers)
@settings(max_examples=80, deadline=None)
def test_each_number_gets_what_it_gets_alone(columns, pairs):
    points = Points({"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}, columns)
    found = points.outcomes(lambda at: some_code(at["a"], at["b"]), 7)
    for place, (a, b) in enumerate(pairs):
        assert [int(column[place]) for column in found] == some_code(a, b)
    assert points.runs <= len(pairs)


def test_what_agrees_runs_once():
    points = Points({"a": list(range(1, 1000))}, Lists())
    points.outcomes(lambda at: [max(at["a"] * 2, at["a"] + at["a"] + 1)], 1)
    assert points.runs == 1


@pytest.mark.parametrize("least", [1, 2])
def test_what_the_ends_of_the_sizes_decide_is_not_asked_of_each_number(least, monkeypatch):
    monkeypatch.setattr(Lists, "positive", lambda *_: pytest.fail("asked of each number"))
    points = Points({"a": list(range(least, 100))}, Lists())
    assert points.outcomes(lambda at: [7 if 1 - at["a"] > 0 else 8], 1) == [[8] * (100 - least)]


@pytest.mark.parametrize("use", [int, float, range, math.sqrt, lambda one: [0, 1][one]])
def test_one_number_is_not_taken_for_another(use):
    points = Points({"a": list(range(1, 10))})
    with pytest.raises(ManyNumbers):
        points.outcomes(lambda at: [use(at["a"])], 1)


def test_numbers_beyond_64_bits_are_refused_by_arrays_and_held_by_lists():
    def code(at):
        return [at["a"] * at["a"] * 1000]

    sizes = {"a": [1, 2, 3, 4, 1 << 40]}
    with pytest.raises(OverflowError):
        Points(sizes, Arrays()).outcomes(code, 1)
    assert Points(sizes, Lists()).outcomes(code, 1) == [[1000, 4000, 9000, 16000, 1000 << 80]]


@pytest.mark.parametrize(
    "over", [lambda a, b: 2 * a * b // (2 * a), lambda a, b: a * b // (a + b), lambda a, b: a // (a * b)]
)
def test_only_a_plain_product_of_sizes_divides_without_a_rest(over):
    points = Points({"a": list(range(2, 10)), "b": list(range(3, 11))}, Lists())
    assert points.outcomes(lambda at: [at["a"] * at["b"] // at["a"]], 1) == [list(range(3, 11))]
    with pytest.raises(ManyNumbers):
        points.outcomes(lambda at: [over(at["a"], at["b"])], 1)


@pytest.mark.parametrize("divisor", [0, -3, 2.5])
def test_divisors_are_positive_whole_numbers(divisor):
    points = Points({"a": list(range(2, 10))}, Lists())
    with pytest.raises(TypeError):
        points.outcomes(lambda at: [at["a"] // divisor], 1)
    with pytest.raises(TypeError):
        points.outcomes(lambda at: [at["a"] % divisor], 1)


def test_a_rest_is_each_numbers_own():
    points = Points({"a": list(range(1, 200))}, Lists())
    assert points.outcomes(lambda at: [at["a"] % 64], 1) == [[a % 64 for a in range(1, 200)]]


def test_a_quotient_that_grows_beyond_64_bits_is_refused_by_arrays():
    points = Points({"a": [5, 7, 1 << 30]}, Arrays())
    with pytest.raises(OverflowError):
        points.outcomes(lambda at: [at["a"] * at["a"] // 3 * 64], 1)
