"""No number moves unless somebody means it: a sixteenth of the frozen scenarios, in thorough runs all of them."""

from __future__ import annotations

from itertools import islice

import pytest
from freeze import differences, frozen, numbers_of, scenarios

from by_turns import is_thorough

EVERY = 1 if is_thorough() else 16
PARTS = 16
WHOLE, THEN = scenarios(), frozen()


def test_each_scenario_is_frozen() -> None:
    assert list(THEN) == list(WHOLE), "python tests/frozen/freeze.py --write"


@pytest.mark.parametrize("part", range(PARTS))
def test_numbers_are_as_they_were_frozen(part: int) -> None:
    found = []
    for id_ in islice(WHOLE, part * EVERY, None, PARTS * EVERY):
        found += differences(id_, THEN[id_], numbers_of(WHOLE[id_]))
    assert not found, "\n".join((*found[:20], f"{len(found)} numbers: python tests/frozen/freeze.py shows them all"))
