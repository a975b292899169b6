"""Every package that mutants are made of has tests that can notice them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutants import PACKAGES, ROOT, asked_of, folders_of, mutants_of


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_tests_to_ask(package: str) -> None:
    folders = folders_of(package)
    assert folders
    assert len(set(folders)) == len(folders)
    for tests in folders:
        assert (ROOT / "tests" / tests).exists(), tests


def test_the_nearest_tests_are_asked_first() -> None:
    mutant = next(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    asked = asked_of(mutant)
    assert asked[0].startswith("tests/hardware/test_")
    assert asked.index("tests/hardware/test_room.py") < asked.index("tests/hardware") < asked.index("tests/cli")


def test_a_mutant_is_another_text_of_one_line() -> None:
    found = list(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    assert len(found) > 10
    assert all(one.before != one.after for one in found)
