"""docs/comparison.md, the README's extract of it, docs/how-to.md: what is counted and named there is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vramwise.engines import engines
from vramwise.scenario.names import FRAMEWORKS

ROOT = Path(__file__).parents[2]
CASES = sum(len(path.read_text("utf-8").splitlines()) for path in (ROOT / "benchmarks/cases").glob("*.jsonl"))


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_engines_and_cases_are_counted(page):
    text = (ROOT / page).read_text("utf-8")
    assert re.findall(r"(\d+) engines, by version", text) == [str(len(list(engines())))]
    (said,) = re.findall(r"over ([\d,]+) cases", text)
    assert CASES - 100 <= int(said.replace(",", "")) < CASES


def test_every_tool_of_the_benchmark_is_named(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks/peers"))
    import compare

    import serving

    beside = (ROOT / "docs/comparison.md").read_text("utf-8").rpartition("`benchmarks/peers/`")[2]
    named = [*compare.VERSIONS, *(tool.name for tool in serving.TOOLS)]
    assert [name for name in named if name not in beside] == []
    counted = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")[len(named)]
    assert f"puts {counted} tools" in (ROOT / "README.md").read_text("utf-8")


def test_every_engine_and_framework_has_its_how_to():
    text = (ROOT / "docs/how-to.md").read_text("utf-8")
    headings = [re.sub(r"[^a-z]", "", line.lower()) for line in re.findall("^## (.*)", text, re.MULTILINE)]
    named = (*(one.title for one in engines()), *FRAMEWORKS)
    asked = [name for name in named if not any(re.sub(r"[^a-z]", "", name.lower()) in one for one in headings)]
    assert [name for name in asked if f"--framework {name}" not in text] == []
