"""vLLM 0.8 to 0.10 take their first engine for what the second does not run, asked or not."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate, model_of
from vramwise.hardware.lookup import find_gpu
from vramwise.scenario import Scenario
from vramwise.serving.vllm.settings import resolve_settings

MLLAMA = "meta-llama/Llama-3.2-11B-Vision-Instruct"


def generation(model: str, version: str, gpu: str = "h100-sxm-80gb", **settings: object) -> str:
    serve = {"engine": "vllm", "engine_version": version, **settings}
    scenario = Scenario.from_dict({"model": model, "task": "serve", "gpu": gpu, "serve": serve})
    return resolve_settings(scenario, model_of(scenario)[1], find_gpu(gpu).gpu).profile.generation


@pytest.mark.parametrize(
    ("model", "version", "expected"),
    [(MLLAMA, "0.7.2", "V0"), (MLLAMA, "0.8.5", "V0"), (MLLAMA, "0.10.2", "V0"), ("Qwen/Qwen3-8B", "0.8.5", "V1")],
)
def test_types_without_a_second_engine(model: str, version: str, expected: str) -> None:
    assert generation(model, version) == expected


@pytest.mark.parametrize(
    ("version", "gpu", "expected"),
    [("0.9.2", "a100-sxm-80gb", "V0"), ("0.9.2", "h100-sxm-80gb", "V1"), ("0.11.0", "a100-sxm-80gb", "V1")],
)
def test_a_cache_of_8_bits_where_flash_attention_3_does_not_run(version: str, gpu: str, expected: str) -> None:
    assert generation("Qwen/Qwen3-8B", version, gpu, kv_cache_dtype="fp8") == expected


@pytest.mark.parametrize(("version", "expected"), [("0.8.5", "V0"), ("0.9.0", "V0"), ("0.9.2", "V1")])
def test_weights_of_32_bits(version: str, expected: str) -> None:
    assert generation("Qwen/Qwen3-8B", version, dtype="fp32") == expected


def test_the_second_engine_stays_where_it_is_asked_for() -> None:
    assert generation("Qwen/Qwen3-8B", "0.8.5", "a100-sxm-80gb", kv_cache_dtype="fp8", use_v1=True) == "V1"


def test_the_answer_is_that_of_the_first_engine_and_says_so() -> None:
    asked, own = (
        estimate({
            "model": MLLAMA, "task": "serve", "gpu": "h100-sxm-80gb",
            "serve": {"engine": "vllm", "engine_version": version, "max_model_len": 8192, "max_num_seqs": 16},
        })
        for version in ("0.8.5 (V0)", "0.8.5")
    )  # fmt: skip
    assert asked.quantities["activation_peak"].expected == own.quantities["activation_peak"].expected
    assert asked.quantities["kv_cache_bytes"].expected == own.quantities["kv_cache_bytes"].expected
    sentence = "this version of vLLM runs this on its V0 engine by itself"
    assert sentence in own.notes
    assert sentence not in asked.notes
