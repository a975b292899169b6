"""The documentation as a site: everything is built, every link leads somewhere, and nothing is fetched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source)[^>]+src="https?:|<link[^>]+href="https?:|@import|url\(["']?https?:"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The folder that `mkdocs build --strict` writes; it ends with an error at a link that leads nowhere."""
    pytest.importorskip("material", reason="the site is built with mkdocs-material")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


def test_no_page_asks_a_stranger_for_anything(site):
    pages = sorted((*site.rglob("*.html"), *site.rglob("*.css")))
    assert len(pages) > 60
    assert [str(page) for page in pages if FOREIGN.search(page.read_text("utf-8"))] == []


def test_the_reference_is_made_of_the_code(site):
    from vramwise.engines import engines
    from vramwise.hardware import gpus
    from vramwise.scenario.definition import KINDS
    from vramwise.sources.catalog import catalog

    def shown(name: str) -> str:
        return (site / "reference" / f"{name}.html").read_text("utf-8")

    keys = shown("keys")
    assert {key for kinds in KINDS.values() for key in kinds if f"<code>{key}</code>" not in keys} == set()
    assert [one.title for one in engines() if one.title not in shown("engines")] == []
    assert [one.id for one in gpus("") if one.id not in shown("gpus")] == []
    assert [one.id for one in catalog("") if one.id not in shown("models")] == []
    assert "vramwise estimate --gpu h100 -- vllm serve" in shown("commands")
    assert "vramwise.Result" in shown("python")
    formulas = shown("formulas")
    assert "Σ cells × streams × (K row + V row)" in formulas
    assert "72 L h² (1 + s/6h + V/12hL)" in formulas
    assert "llama.cpp src/llama-kv-cache.cpp" in formulas


def test_every_measured_value_can_be_looked_through(site):
    assert '<script src="cases.js">' in (site / "reference/cases.html").read_text("utf-8")
    values, _, script = (site / "reference/cases.js").read_text("utf-8").partition(";\n")
    rows = json.loads(values.removeprefix("const VALUES = "))
    judged = map(json.loads, (ROOT / "tests/accuracy/judged.jsonl").read_text("utf-8").splitlines())
    assert len(rows) == sum(len(line.get("said", {})) for line in judged)
    assert {len(row) for row in rows} == {10}
    assert all(row[8] for row in rows)
    assert "VALUES.filter" in script
    assert "0.1.0-rc.1 (2026-11-24)" in (site / "reference/history.html").read_text("utf-8")


def test_the_figures_are_drawn_of_answers(site):
    moments = (site / "concepts/moments.svg").read_text("utf-8")
    assert "backward: head" in moments
    assert "GiB" in moments
    assert "放不下" in (site / "zh/concepts/intervals.svg").read_text("utf-8")
    assert "estimation" in (site / "reference/architecture.svg").read_text("utf-8")


def test_tutorials_and_concepts_stand_in_both_languages():
    docs = ROOT / "docs"
    for folder in ("tutorials", "concepts"):
        names = {path.name for path in (docs / folder).glob("*.md")}
        assert names == {path.name for path in (docs / "zh" / folder).glob("*.md")}
        for name in names:
            english, chinese = (asked((docs / at / folder / name).read_text("utf-8")) for at in ("", "zh"))
            assert english == chinese, name


def asked(page: str) -> list[str]:
    """The commands that a page shows: in whichever language, and whatever lines it keeps of their answers."""
    commands = re.findall(r"^\$ (.*)", page, re.M)
    return [command.replace("vramwise --lang zh ", "vramwise ").partition(" | ")[0] for command in commands]


def test_the_pictures_of_the_readme_are_todays(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools/site"))
    import figures

    for path, draw in figures.COMMITTED.items():
        assert (ROOT / path).read_text("utf-8") == draw(ROOT), "write them anew: python tools/site/figures.py"


def test_a_newcomer_finishes_the_readme():
    for name in ("README.md", "README.zh.md"):
        text = (ROOT / name).read_text("utf-8")
        assert text.count("\n") <= 150
        assert text.count("![") == 3
