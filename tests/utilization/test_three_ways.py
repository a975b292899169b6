"""One run's utilization by FLOPs, by throughput and by its trace, side by side."""

from __future__ import annotations

import json

import pytest
from made_traces import document, text, two_steps

from vramwise.cli.main import main

RUN = "--tflops 100 --gpu a100-sxm-80gb"
RATE = "--examples-per-second 3 --sequence-length 2048 -n 4 --reference 3300"


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(text(document(two_steps())))
    return str(path)


def test_each_way_has_its_own_figure(trace, capsys):
    assert main(["profile", trace, "--run", "llama-3-8b --gpu a100-sxm-80gb " + RATE, "--json"]) == 0
    ways = json.loads(capsys.readouterr().out)["ways"]
    assert round(ways["flops"]["mfu_pct"], 2) == 23.75
    assert round(ways["throughput"]["pct"], 3) == 46.545
    assert (ways["trace"]["busy_pct"], ways["trace"]["compute_pct"]) == (65, 50)


def test_the_screen_says_why_they_differ(trace, capsys):
    assert main(["profile", trace, f"--run={RUN}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "32.05 %" in said
    assert "65.00 %" in said
    assert "give --reference" in said
    assert "different questions" in said


@pytest.mark.parametrize("run", ["--tflops many", '"', "--task decode", "--frobnicate"])
def test_a_run_that_is_none_is_one_line(trace, capsys, run):
    assert main(["profile", trace, f"--run={run}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
