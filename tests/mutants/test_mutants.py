"""Every package that mutants are made of has tests that can notice them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from mutants import PACKAGES, ROOT, mutants_of, other_tests, own_tests


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_tests_to_ask(package: str) -> None:
    for tests in (own_tests(package), *other_tests(package)):
        assert (ROOT / "tests" / tests).exists(), tests
    assert own_tests(package) not in other_tests(package)


def test_a_mutant_is_another_text_of_one_line() -> None:
    found = list(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    assert len(found) > 10
    assert all(one.before != one.after for one in found)
