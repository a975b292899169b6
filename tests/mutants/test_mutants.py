"""Every package that mutants are made of has tests that can notice them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import mutants
from mutants import PACKAGES, ROOT, Judge, asked_of, folders_of, mutants_of


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_has_tests_to_ask(package: str) -> None:
    folders = folders_of(package)
    assert folders
    assert len(set(folders)) == len(folders)
    for tests in folders:
        assert (ROOT / "tests" / tests).exists(), tests


def test_files_are_asked_each_once() -> None:
    mutant = next(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    asked = asked_of(mutant)
    assert len(asked) == len(set(asked))
    assert {Path(name).parts[1] for name in asked} >= {"hardware", "cli"}
    assert all((ROOT / name).is_file() for name in asked)  # a folder beside its files would be taken in its own order


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("hardware/room.py", "tests/hardware/test_room.py"),
        ("hardware/machine/known_conflicts.py", "tests/hardware/machine/test_known_conflicts.py"),
        ("serving/llama_cpp/ollama.py", "tests/serving/test_llama_cpp.py"),
        ("interop/launch/slime.py", "tests/interop/test_launch_frameworks.py"),
    ],
)
def test_files_that_speak_of_what_a_function_speaks_of_stand_first(source: str, test: str) -> None:
    asked = asked_of(next(mutants_of(ROOT / "src" / "vramwise" / source)))
    assert test in asked[:5]


def test_a_mutant_is_another_text_of_one_line() -> None:
    found = list(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    assert len(found) > 10
    assert all(one.before != one.after for one in found)


def answering(answers: list[str], monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is asked, where pytest's answers are given."""
    asked: list[list[str]] = []

    def first_failure(_sources: Path, tests: list[str]) -> str:
        asked.append(tests)
        return answers[len(asked) - 1]

    monkeypatch.setattr(mutants, "first_failure", first_failure)
    return asked


@pytest.mark.parametrize(
    ("alone", "with_it"),
    [("FAILED tests/hardware/test_room.py::test_a", ""), ("", "")],
    ids=["fails without the mutant", "fails once only"],
)
def test_a_failure_that_says_nothing_of_the_mutant_is_left_out(
    alone: str, with_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "FAILED tests/hardware/test_room.py::test_a - assert"
    answers = [
        said,
        *([alone] if alone else [alone, with_it]),
        "FAILED tests/hardware/test_room.py::test_b",
        "",
        "FAILED",
    ]
    asked = answering(answers, monkeypatch)
    judge = Judge([])
    test = judge.noticed_by(next(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py")))
    assert test == "tests/hardware/test_room.py::test_b"
    assert len(asked) == len(answers)
    assert judge.left_out == {"tests/hardware/test_room.py::test_a"}
    assert "--deselect=tests/hardware/test_room.py::test_a" in asked[-1]


def test_ignored_files_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answering([""], monkeypatch)
    mutant = next(mutants_of(ROOT / "src" / "vramwise" / "hardware" / "room.py"))
    assert Judge(["tests/cli"]).noticed_by(mutant) == ""
    assert asked[0] == [name for name in asked_of(mutant) if not name.startswith("tests/cli/")]
