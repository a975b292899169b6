from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vramwise.largest import largest_within

MOST = 2**20
LINES = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1, max_size=5)


def rounded_maximum(lines, unit):
    """A maximum of lines in n, rounded up as an allocator does."""
    return lambda n: -(-max(fixed + slope * n for fixed, slope in lines) // unit) * unit


@given(
    lines=LINES,
    room=st.integers(0, 10**14),
    unit=st.sampled_from([1, 512, 2**21]),
    most=st.sampled_from([1, 7, MOST]),
    data=st.data(),
)
def test_it_is_the_largest_that_fits(lines, room, unit, most, data):
    need = rounded_maximum(lines, unit)
    known = data.draw(st.none() | st.integers(1, most).map(lambda size: (size, need(size))))
    found = largest_within(need, room, most, known)
    assert 0 <= found <= most
    assert found == 0 or need(found) <= room
    assert found == most or need(found + 1) > room


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=40), room=st.integers(0, 100), data=st.data())
def test_a_need_that_falls_here_and_there_still_gets_a_size_that_fits_below_one_that_does_not(sizes, room, data):
    known = data.draw(st.none() | st.integers(1, len(sizes)).map(lambda size: (size, sizes[size - 1])))
    found = largest_within(lambda n: sizes[n - 1], room, len(sizes), known)
    assert found == 0 or sizes[found - 1] <= room
    assert found == len(sizes) or sizes[found] > room


@given(lines=LINES, room=st.integers(10**10, 10**14))
def test_it_asks_few_times(lines, room):
    asked = []

    def need(n):
        asked.append(n)
        return rounded_maximum(lines, 512)(n)

    largest_within(need, room, MOST)
    assert len(asked) <= 60


def test_a_single_line_takes_a_handful_of_evaluations():
    asked = []

    def need(n):
        asked.append(n)
        return 10**9 + 123_456_789 * n

    assert largest_within(need, 80 * 10**9, MOST) == 639
    assert len(asked) <= 6


def test_of_no_sizes_none_fits():
    assert largest_within(lambda n: 0, 10, 0) == 0
