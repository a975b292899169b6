from __future__ import annotations

import io
import json
import sys
from types import ModuleType

import pytest

from vramwise.cli.main import main
from vramwise.result import ModelFacts, Quantity, Result


@pytest.fixture(autouse=True)
def estimation(monkeypatch):
    """Every scenario takes 90 bytes of weights, 80 to 110."""
    module = ModuleType("vramwise.estimation")
    facts = ModelFacts("m", 1, 1, 0, "test")
    module.estimate = lambda scenario: Result(scenario={}, model=facts, quantities={"weights": Quantity(80, 90, 110)})
    monkeypatch.setitem(sys.modules, "vramwise.estimation", module)


def case_line(id_, measured, source="owner/repository x") -> str:
    scenario = {"model": "m", "task": "serve", "serve": {"engine": "vllm"}}
    return json.dumps({"id": id_, "scenario": scenario, "measured": {"weights": measured}, "source": source})


@pytest.fixture
def cases(tmp_path):
    path = tmp_path / "cases.jsonl"
    lines = [case_line("a", 100), case_line("b", 180, "other/one y"), "{"]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_the_table(cases, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["accuracy", str(cases)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == [
        "engine   quantity   n   median   |median|   |p90|   worst   in interval   above    width",
        "vllm     weights    2    −30.0       30.0    50.0   −50.0          50 %    50 %   23.3 %",
    ]
    assert "unusable: 1 line\n" in out
    assert "line 3: not JSON" in " ".join(out.split())
    assert err == ""


def test_a_folder_and_the_worst_case(cases, capsys):
    assert main(["accuracy", str(cases.parent), "--worst", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  −50.0 %  weights  b",
        "    vllm: measured 180 B, estimated 90 B (80 – 110 B)",
    ]


def test_json_and_nothing_else(cases, capsys):
    assert main(["accuracy", str(cases), "--json", "--worst", "5"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert data["rows"][0]["median_error"] == pytest.approx(-0.3)
    assert [row["id"] for row in data["worst"]] == ["b", "a"]
    assert data["unusable"][0]["line"] == 3
    assert err == ""


def test_rows_by_source(cases, capsys):
    assert main(["accuracy", str(cases), "--by", "source", "--json"]) == 0
    groups = [row["group"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert groups == ["other/one", "owner/repository"]


def test_weighing_by_source(tmp_path, capsys):
    path = tmp_path / "c.jsonl"
    lines = [case_line("a", 100), case_line("b", 100), case_line("c", 180, "other/one y")]
    path.write_text("\n".join(lines), encoding="utf-8")
    medians = []
    for weigh in ("case", "source"):
        assert main(["accuracy", str(path), "--weigh", weigh, "--json"]) == 0
        medians.append(json.loads(capsys.readouterr().out)["rows"][0]["median_error"])
    assert medians == [pytest.approx(-0.1), pytest.approx(-0.3)]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["missing.jsonl"], 4, "missing.jsonl: no such file or folder"),
        ([], 2, "FILE_OR_DIR"),
        (["--worst", "-1", "x.jsonl"], 2, "--worst"),
        (["--worst", "many", "x.jsonl"], 2, 'expected a whole number ≥ 0, got "many"'),
        (["--by", "colour", "x.jsonl"], 2, "--by"),
    ],
)
def test_bad_questions(arguments, code, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert exit_code(["accuracy", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err


def test_a_folder_without_cases(tmp_path, capsys):
    assert exit_code(["accuracy", str(tmp_path)]) == 2
    assert "no .jsonl file in this folder" in capsys.readouterr().err


def test_a_file_without_a_usable_line_is_answered_too(tmp_path, capsys):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b"\x00\xff" * 1000)
    assert main(["accuracy", str(path)]) == 0
    assert "unusable: 1 line\n" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_a_terminal_and_leaves_nothing_behind(tmp_path, monkeypatch):
    path = tmp_path / "c.jsonl"
    path.write_text("\n".join(case_line(f"c{n}", 100) for n in range(60)), encoding="utf-8")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert main(["accuracy", str(path), "--json"]) == 0
    assert terminal.getvalue().startswith("\r\x1b[Kestimating: 0 of 60 cases")
    assert terminal.getvalue().endswith("\r\x1b[K")


def exit_code(arguments: list[str]) -> int:
    """What `main` answers, whether it returns or leaves (argparse leaves)."""
    try:
        return main(arguments)
    except SystemExit as leaving:
        return int(leaving.code or 0)
