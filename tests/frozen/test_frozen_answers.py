"""What fits, what is planned, judged, used and written: every value of these commands is as it was frozen."""

from __future__ import annotations

import pytest
from answers import answer_of, commands, frozen
from freeze import differences

PARTS = 8
THEN = frozen()


def test_each_command_is_frozen() -> None:
    assert list(THEN) == commands(), "python tests/frozen/answers.py --write"


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_are_as_they_were_frozen(part: int) -> None:
    found = []
    for command in commands()[part::PARTS]:
        found += differences(command, THEN[command], answer_of(command))
    assert not found, "\n".join((*found[:20], f"{len(found)} values: python tests/frozen/answers.py shows them all"))
