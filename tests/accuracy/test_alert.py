"""tools/accuracy_alert.py: a line that got worse by more than two points is said, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def alert(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import accuracy_alert

    yield accuracy_alert
    sys.modules.pop("accuracy_alert")


def row(group="vLLM", quantity="weights", count=20, median=0.010, p90=0.05, coverage=0.95):
    return {"group": group, "quantity": quantity, "count": count, "median_absolute_error": median,
            "p90_absolute_error": p90, "coverage": coverage}  # fmt: skip


def said(alert, tmp_path, capsys, before, after, *flags):
    for name, rows in (("before", before), ("after", after)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"schema": 1, "rows": rows}), "utf-8")
    code = alert.main([str(tmp_path / "before.json"), str(tmp_path / "after.json"), *flags])
    lines = capsys.readouterr().out.splitlines()
    assert code == (1 if lines else 0)
    return [line.partition("::error title=accuracy::")[2] for line in lines]


def test_what_stays_or_gets_better_is_not_said(alert, tmp_path, capsys):
    assert said(alert, tmp_path, capsys, [row()], [row()]) == []
    assert said(alert, tmp_path, capsys, [row()], [row(median=0.029, p90=0.069, coverage=0.931)]) == []
    assert said(alert, tmp_path, capsys, [row(median=0.3)], [row(coverage=1.0), row("new")]) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([row(median=0.031)], "vLLM weights: median error 3.1 %, was 1.0 % (+2.1 points)"),
        ([row(p90=0.08)], "vLLM weights: 90th percentile 8.0 %, was 5.0 % (+3.0 points)"),
        ([row(coverage=0.90)], "vLLM weights: intervals hold 90 % of cases, held 95 %"),
        ([row(count=19)], "vLLM weights: 19 cases are answered, 20 were"),
        ([], "vLLM weights: 0 cases are answered, 20 were"),
    ],
)
def test_what_got_worse_is_said(alert, tmp_path, capsys, after, expected):
    assert said(alert, tmp_path, capsys, [row()], after) == [expected]


def test_few_cases_say_nothing_and_the_limit_is_ones_own(alert, tmp_path, capsys):
    few = [row(count=4)], [row(count=4, median=0.9)]
    assert said(alert, tmp_path, capsys, *few) == []
    assert said(alert, tmp_path, capsys, [row()], [row(median=0.031)], "--points", "5") == []


def test_it_reads_what_the_command_prints(alert, tmp_path, capsys):
    from vramwise.cli.main import main

    cases = tmp_path / "cases.jsonl"
    lines = (ROOT / "benchmarks" / "cases" / "llamacpp.jsonl").read_text("utf-8").splitlines()[:8]
    cases.write_text("\n".join(lines) + "\n", "utf-8")
    assert main(["accuracy", str(cases), "--json"]) == 0
    table = tmp_path / "table.json"
    table.write_text(capsys.readouterr().out, "utf-8")
    assert alert.main([str(table), str(table)]) == 0
    assert alert.rows_of(table)["llama.cpp", "kv_cache_bytes"]["count"] == 8
