"""`scripts/test --fast` runs the tests nearest to a change first."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def nearest_tests(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import changed_tests

    return changed_tests.nearest_tests


def test_a_changed_test_runs_first_and_a_module_brings_those_that_import_it(nearest_tests):
    found = nearest_tests(["src/vramwise/units.py", "tests/cli/test_schema.py"])
    assert found[0] == "tests/cli/test_schema.py"
    assert "tests/test_units.py" in found
    assert found.index("tests/test_units.py") < len(found) - 3
    assert len(found) == len(set(found))


def test_a_page_or_a_recipe_brings_its_own_tests(nearest_tests):
    assert nearest_tests(["docs/index.md"])[0] == "tests/docs/test_site.py"
    assert nearest_tests(["deploy/conda/recipe.yaml"])[0] == "tests/packages/test_packages.py"


def test_nothing_changed_runs_the_cheap_nearest_tests_the_whole(nearest_tests):
    import changed_tests

    assert nearest_tests([]) == list(changed_tests.ALWAYS)
    assert all((ROOT / name).exists() for names in changed_tests.BY_DATA.values() for name in names)


def test_what_tests_import_of_one_another_is_one_file():
    """Each folder that has such modules puts itself first on the path: of two the folder asked last would win."""
    files = list((ROOT / "tests").rglob("*.py"))
    doubled = {name for name, count in Counter(file.stem for file in files).items() if count > 1} - {"conftest"}
    imported = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
    found = {str(file): doubled.intersection(imported.findall(file.read_text("utf-8"))) for file in files}
    assert {file: names for file, names in found.items() if names} == {}
