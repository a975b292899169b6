"""Checkpoints whose names say how their weights are quantized."""

from __future__ import annotations

import pytest

from vramwise import estimate
from vramwise.errors import SourceError
from vramwise.sources import resolve


@pytest.mark.parametrize(
    ("name", "base", "method"),
    [
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "Qwen/Qwen2.5-7B-Instruct", "awq"),
        ("TheBloke/Mistral-7B-v0.1-GPTQ", "mistralai/Mistral-7B-v0.1", "gptq"),
        ("hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4", "meta-llama/Meta-Llama-3.1-8B-Instruct", "awq"),
        ("unsloth/meta-llama-3.1-8b-instruct-bnb-4bit", "meta-llama/Meta-Llama-3.1-8B-Instruct", "bitsandbytes"),
        ("nobody/Llama-3.3-70B-Instruct-FP8-dynamic", "meta-llama/Llama-3.3-70B-Instruct", "fbgemm_fp8"),
    ],
)
def test_the_name_says_model_and_format(name: str, base: str, method: str) -> None:
    found = resolve(name)
    assert found.id == name
    assert found.config["quantization_config"]["quant_method"] == method
    assert {**found.config, "quantization_config": None} == {**resolve(base).config, "quantization_config": None}
    assert found.note is not None
    assert base in found.note


def test_a_format_behind_an_unknown_name_is_no_model() -> None:
    with pytest.raises(SourceError, match="unknown model"):
        resolve("nobody/nothing-AWQ")


def test_weights_as_vllm_prints_them() -> None:
    """ "Loading model weights took 5.2032 GB", Qwen2.5 7B Instruct AWQ, vllm-project/vllm issue #13882."""
    serve = {"engine": "vllm", "engine_version": "0.7.3", "max_model_len": 4096}
    scenario = {"model": "Qwen/Qwen2.5-7B-Instruct-AWQ", "task": "serve", "gpu": "rtx-4090", "serve": serve}
    assert estimate(scenario).quantities["weights"].expected == pytest.approx(5.2032 * 2**30, rel=0.002)
