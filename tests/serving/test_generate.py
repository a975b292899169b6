"""`generate` against Qwen's published speed tables (transformers 4.46, A100 80 GB, flash attention)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result

CASES = Path(__file__).parents[2] / "benchmarks" / "cases" / "serving.jsonl"


def rows() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [row for row in lines if row["scenario"]["task"] == "generate" and row["confidence"] == "high"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row["id"]))
def test_peak_is_near_the_measured_one(row: dict[str, Any]) -> None:
    expected = estimate(row["scenario"]).quantities["peak_allocated"].expected
    assert abs(expected / row["measured"]["peak_allocated"] - 1) < 0.023


def small(**generate: object) -> Result:
    return estimate({"model": "Qwen/Qwen2.5-0.5B", "task": "generate", "generate": generate})


def test_layers_with_many_small_steps_are_walked_operation_by_operation() -> None:
    """GPT-2's gelu_new is Python arithmetic: four tensors of the MLP's width at once, and residual, norm, inputs."""
    result = estimate({"model": "gpt2", "task": "generate", "generate": {"prompt_tokens": 512, "dtype": "fp32"}})
    assert result.quantities["activation_peak"].expected == 512 * (4 * 3072 + 4 * 768) * 4


def test_prefill_runs_every_beam() -> None:
    one, four = (small(prompt_tokens=4096, new_tokens=1, num_beams=n) for n in (1, 4))
    assert four.quantities["activation_peak"].expected == 4 * one.quantities["activation_peak"].expected


def test_beams_multiply_the_cache() -> None:
    one = small(prompt_tokens=100, new_tokens=29)
    four = small(prompt_tokens=100, new_tokens=29, num_beams=4)
    per_token = 2 * 2 * 64 * 24 * 2
    assert one.quantities["kv_cache_bytes"].expected == 128 * per_token
    assert four.quantities["kv_cache_bytes"].expected == 4 * 128 * per_token


def test_eager_attention_grows_with_the_square_of_the_prompt() -> None:
    peaks = [
        small(prompt_tokens=n, new_tokens=1, attention="eager").quantities["activation_peak"].expected
        for n in (8192, 16384)
    ]
    assert 3.9 < peaks[1] / peaks[0] < 4.0


def test_versions_before_4_45_make_logits_of_the_whole_prompt() -> None:
    old = small(prompt_tokens=4096, new_tokens=1, engine_version="4.40.0")
    new = small(prompt_tokens=4096, new_tokens=1, engine_version="4.46.0")
    logits = 4096 * 151936 * 6
    assert old.quantities["peak_allocated"].expected - new.quantities["peak_allocated"].expected > logits / 2


def test_settings_that_were_left_open_are_written_back() -> None:
    table = small().scenario["generate"]
    assert table["prompt_tokens"] == 1024
    assert table["new_tokens"] == 256
    assert table["dtype"] == "bf16"
    assert "capacity" not in table


def test_without_a_gpu_nothing_is_said_about_fitting() -> None:
    result = small()
    assert result.capacity is None
    assert not {"oom", "max_batch", "max_seq"} & set(result.quantities)


def test_a_prompt_that_does_not_fit_is_answered_with_one_that_does() -> None:
    scenario = {
        "model": "Qwen/Qwen2.5-7B-Instruct", "task": "generate", "gpu": "rtx-4090",
        "generate": {"prompt_tokens": 30000, "new_tokens": 1000, "batch_size": 8},
    }  # fmt: skip
    result = estimate(scenario)
    assert result.verdict is not None
    assert not result.verdict.fits
    batch = int(result.quantities["max_batch"].expected)
    assert 1 <= batch < 8
    assert f"batch_size {batch} fits" in result.verdict.reasons
    fitting = estimate({**scenario, "generate": {**scenario["generate"], "batch_size": batch}})  # type: ignore[dict-item]
    assert fitting.verdict is not None
    assert fitting.verdict.fits
