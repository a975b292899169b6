"""Every model and GPU that the measured cases name is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vramwise.hardware import find_gpu
from vramwise.sources import resolve

CASES = Path(__file__).parents[2] / "benchmarks" / "cases"
FILES = sorted(CASES.rglob("*.jsonl"))


@pytest.mark.skipif(not FILES, reason="no measured cases in benchmarks/cases")
def test_every_name_of_the_measured_cases_is_known() -> None:
    seen = 0
    for file in FILES:
        for line in file.read_text(encoding="utf-8").splitlines():
            scenario = json.loads(line)["scenario"]
            assert resolve(scenario["model"]).config
            if "gpu" in scenario:
                assert find_gpu(scenario["gpu"]).gpu.id
            seen += 1
    assert seen > 0
