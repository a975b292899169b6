"""benchmarks/history.csv: the table of errors of every release, as its accuracy page printed it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def history(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import accuracy_history

    return accuracy_history


def test_every_line_of_todays_table_is_read(history):
    page = (ROOT / "docs/accuracy.md").read_text("utf-8")
    table = page.partition("```console")[2].partition("\n\n")[0].splitlines()[3:]
    with_figures = [line for line in table if line.startswith(" ") and "–" not in line]
    found = list(history.lines_of(page))
    assert len(found) == len(with_figures) > 50
    weights = next(line for line in found if (line["engine"], line["quantity"]) == ("vllm", "weights"))
    printed = next(line for line in with_figures if line.startswith(" weights")).split()
    assert weights["count"] == printed[1]
    assert weights["median_absolute"] == printed[3]
    assert float(weights["worst"]) == float(printed[5].replace("−", "-"))


def test_every_release_of_the_changelog_has_its_lines(history):
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    releases = re.findall(r"^## \[(\d[\w.-]*)\] - (\S+)$", changelog, re.MULTILINE)
    assert {(row["version"], row["day"]) for row in history.kept()} == set(releases)


def test_a_release_is_kept_once(history, tmp_path, monkeypatch):
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.csv")
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["accuracy_history.py", "9.9.0", "2030-01-01"])
        history.main()
    rows = history.kept()
    assert len(rows) == len(list(history.lines_of(history.PAGE.read_text("utf-8"))))
    assert {row["version"] for row in rows} == {"9.9.0"}
