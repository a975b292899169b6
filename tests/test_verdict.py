"""Three words from a need and the room for it, and how likely it is that it fits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramwise.result import VERDICT_WORDS, Quantity
from vramwise.verdict import probability_of_fitting, verdict_of

sizes = st.integers(0, 2**45)


@st.composite
def needs(draw: st.DrawFn) -> Quantity:
    return Quantity(*sorted(draw(st.lists(sizes, min_size=3, max_size=3))))


@st.composite
def ordered_needs(draw: st.DrawFn) -> tuple[Quantity, Quantity]:
    """Two needs of any shapes, no end of the first above that of the second."""
    pairs = [sorted(pair) for pair in draw(st.lists(st.tuples(sizes, sizes), min_size=3, max_size=3))]
    return Quantity(*sorted(low for low, _ in pairs)), Quantity(*sorted(high for _, high in pairs))


@given(ordered_needs(), st.data())
def test_a_smaller_need_never_gets_a_worse_word_or_a_lower_probability(pair, data):
    smaller, larger = pair
    ends = [int(end) for need in pair for end in (need.low, need.expected, need.high)]
    room = data.draw(sizes | st.sampled_from(ends))
    better, worse = verdict_of(smaller, room), verdict_of(larger, room)
    assert VERDICT_WORDS.index(better.word) <= VERDICT_WORDS.index(worse.word)
    assert better.probability >= worse.probability
    assert better.headroom_bytes >= worse.headroom_bytes


@given(needs(), sizes, sizes)
def test_a_larger_room_never_gets_a_worse_word_or_a_lower_probability(need, room, more):
    better, worse = verdict_of(need, room + more), verdict_of(need, room)
    assert VERDICT_WORDS.index(better.word) <= VERDICT_WORDS.index(worse.word)
    assert better.probability >= worse.probability


@given(needs(), sizes)
def test_the_word_follows_from_the_interval_and_the_room(need, room):
    found = verdict_of(need, room)
    assert found.word == ("does not fit" if need.expected > room else "tight" if need.high > room else "fits")
    assert found.fits is (need.expected <= room) is (found.headroom_bytes >= 0)
    assert 0 <= found.probability <= 1
    assert (found.probability < 0.95) is (found.word != "fits")
    assert (found.word == "tight") is any(reason.startswith("tight: ") for reason in found.reasons)


@pytest.mark.parametrize(
    ("room", "probability"),
    [
        (90, 0.05),
        (100, 0.5),
        (140, 0.95),
        (120, 0.914),
        (95, 0.086),
        (160, 0.95 + 0.05 * (1 - math.exp(-(20 / 140) / 0.22))),
    ],
)
def test_the_marks_of_an_interval_are_its_probabilities(room, probability):
    assert probability_of_fitting(Quantity(90, 100, 140), room) == pytest.approx(probability, abs=1e-4)


def test_what_runs_nowhere_fits_nowhere():
    found = verdict_of(Quantity.exact(1), 100, ["no kernel"], runs=False)
    assert (found.word, found.fits, found.headroom_bytes, found.probability) == ("does not fit", False, 99, 0.0)
    assert found.reasons == ("no kernel",)
