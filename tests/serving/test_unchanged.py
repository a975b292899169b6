"""A setting that the model or the machine leaves nothing to change says so, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate

DENSE, EXPERTS, WINDOWS = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-4b-it"
STATES, IMAGES = "nvidia/Nemotron-H-56B-Base-8K", "Qwen/Qwen2.5-VL-7B-Instruct"


def said(model: str, engine: str, key: str, value: Any, **more: Any) -> list[str]:
    notes = estimate(model, task="serve", gpu="h100-sxm-80gb", serve={"engine": engine, key: value}, **more).notes
    return [note.removeprefix(f"{key} changed nothing here: ") for note in notes if note.startswith(f"{key} changed")]


@pytest.mark.parametrize(
    ("engine", "key", "value", "why", "model"),
    [
        ("llama.cpp", "n_cpu_moe", 3, "the model has no experts", EXPERTS),
        ("llama.cpp", "cpu_moe", True, "the model has no experts", EXPERTS),
        ("sglang", "expert_parallel", True, "the model has no experts", EXPERTS),
        ("llama.cpp", "swa_full", True, "every layer's cache keeps all tokens", WINDOWS),
        ("vllm", "disable_hybrid_kv_cache_manager", True, "every layer's cache keeps all tokens", WINDOWS),
        ("sglang", "swa_full_tokens_ratio", 0.5, "every layer's cache keeps all tokens", WINDOWS),
        ("vllm", "mamba_ssm_cache_dtype", "fp32", "no layer of the model keeps a recurrent state", STATES),
        ("vllm", "limit_mm_per_prompt", {"image": 0}, "the model reads text alone", IMAGES),
        ("vllm", "language_model_only", True, "the model reads text alone", IMAGES),
        ("vllm", "quantization_group_size", 64, "the weights are not quantized", "Qwen/Qwen2.5-7B-Instruct-AWQ"),
    ],
)
def test_a_setting_that_a_model_leaves_nothing_to_change(
    engine: str, key: str, value: Any, why: str, model: str
) -> None:
    assert said(DENSE, engine, key, value) == [why]
    assert said(model, engine, key, value) == []


def test_what_is_shared_out_over_one_gpu() -> None:
    for key, value in (("split_mode", "row"), ("tensor_split", [1]), ("main_gpu", 0)):
        assert said(DENSE, "llama.cpp", key, value) == ["there is one GPU at most"]
    assert said(DENSE, "llama.cpp", "split_mode", "row", num_gpus=2) == []
