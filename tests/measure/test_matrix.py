"""benchmarks/gpu: the plan covers what it claims, and the command runs end to end on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import vramwise
from vramwise.measure.supported import refuse_what_cannot_run
from vramwise.sources import resolve

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
FIRST_CASES = 80  # twenty minutes at 15 s each


@pytest.fixture(scope="module")
def matrix():
    sys.path.insert(0, str(GPU))
    try:
        import matrix

        yield matrix
    finally:
        sys.path.remove(str(GPU))


def kinds(cases):
    """Everything that a case may differ in, as words."""
    found = set()
    for case in cases:
        config = resolve(case.scenario["model"]).config
        found |= {case.scenario["task"], config["model_type"]}
        table = case.scenario.get("train", {})
        found |= {
            table[key] for key in ("method", "precision", "optimizer", "attention", "checkpointing") if key in table
        }
    return found


def test_the_first_twenty_minutes_see_every_kind(matrix):
    cases = matrix.cases_of(matrix.PRESETS["full"])
    assert 140 <= len(cases) <= 170
    assert len({case.name for case in cases}) == len(cases)
    first = kinds(cases[:FIRST_CASES])
    assert first == kinds(cases)
    assert first >= {
        "llama", "qwen3", "gemma2", "gemma3_text", "gpt2", "mixtral", "qwen3_moe", "mamba", "granitemoehybrid",
        "full", "lora", "qlora", "bf16", "bf16-mixed", "fp32", "eager", "flash", "adafactor", "adamw-8bit", "sgd",
        "train", "generate", "load",
    }  # fmt: skip


@pytest.mark.parametrize("preset", ["full", "tiny"])
def test_every_case_is_one_that_measure_runs_and_estimates(matrix, preset, monkeypatch):
    monkeypatch.setattr("vramwise.measure.supported.need", lambda name: None)  # bitsandbytes may be absent here
    for case in matrix.cases_of(matrix.PRESETS[preset])[:: 1 if preset == "tiny" else 4]:
        result = vramwise.estimate(case.scenario)
        refuse_what_cannot_run(result.scenario, "cpu" if preset == "tiny" else "cuda")


def test_every_model_of_the_plan_is_built_by_transformers(matrix):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from vramwise.measure.building import config_of

    models = {json.dumps(case.scenario["model"]) for case in matrix.cases_of(matrix.PRESETS["full"])}
    for model in sorted(map(json.loads, models), key=str):
        config = resolve(model).config
        with torch.device("meta"):
            built = transformers.AutoModelForCausalLM.from_config(config_of(config), dtype=torch.bfloat16)
        assert sum(p.numel() for p in built.parameters()) == vramwise.describe(config).num_parameters, model


def test_the_command_runs_goes_on_and_ends_with_the_errors(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    output = tmp_path / "cases.jsonl"
    command = [
        sys.executable, GPU / "run.py", "--preset", "tiny", "--device", "cpu", "--only", "llama-train-full",
        "--output", output,
    ]  # fmt: skip
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    (row,) = map(json.loads, output.read_text("utf-8").splitlines())
    assert row["id"] == "llama-train-full-2x64"
    assert row["measured"]["peak_allocated"] > 0
    assert "[1/1" in first
    assert "1 cases, 1 of them in" in second
    assert "[1/1" not in second
    for printed in (first, second):
        assert "transformers   peak_allocated" in printed


def test_a_plan_is_read_without_a_gpu():
    command = [sys.executable, GPU / "run.py", "--dry-run", "--only", "gpt2-train"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "gpt2-train-full-mixed-2x1024" in printed
    assert "minutes" in printed
