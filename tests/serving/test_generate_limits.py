"""The largest batch and the longest prompt of a generation fit when they are asked for, and the next ones do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.serving.transformers.generate import LARGEST_BATCH

MODELS = (
    "gpt2", "meta-llama/Llama-3.1-8B", "microsoft/Phi-3.5-mini-instruct", "google-t5/t5-large",
    "EleutherAI/gpt-neo-125m", "Qwen/Qwen1.5-7B-Chat", "google/gemma-2-9b", "state-spaces/mamba-2.8b-hf",
    "openai/gpt-oss-20b", "deepseek-ai/DeepSeek-V2-Lite", "mistralai/Mistral-7B-v0.1",
)  # fmt: skip
CARDS = ("v100-32gb", "a100-80gb", "t4", "b200", "rtx-4090", "h100-sxm-80gb")


def one(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


SETTINGS = {
    "batch_size": one(1, 2, 7, 32, 100, 1000),
    "prompt_tokens": one(1, 10, 777, 1024, 6000, 30000),
    "new_tokens": one(1, 2, 100, 2000),
    "attention": one("sdpa", "eager", "flash"),
    "quantization": one("awq", "bitsandbytes-nf4", "gptq"),
    "cache_implementation": one("static", "quantized", "none"),
    "prompt_logits": one(True, False),
    "num_beams": one(1, 4),
    "engine_version": one("4.40.0", "4.46.0", "5.23.0"),
}


def asked(scenario: dict[str, Any], **changes: Any) -> Result:
    task = scenario["task"]
    return estimate({**scenario, task: {**scenario.get(task, {}), **changes}})


def fits(scenario: dict[str, Any], **changes: Any) -> bool:
    verdict = asked(scenario, **changes).verdict
    assert verdict is not None
    return verdict.fits


def assert_limits_hold(scenario: dict[str, Any], batch: str, length: str) -> None:
    result = estimate(scenario)
    table = result.scenario[scenario["task"]]
    fixed = {**scenario, scenario["task"]: table}
    most, longest = (int(result.quantities[name].expected) for name in ("max_batch", "max_seq"))
    for key, found in ((batch, most), (length, longest)):
        if found:
            assert fits(fixed, **{key: found}), f"{key} {found} does not fit"
    assert most == LARGEST_BATCH or not fits(fixed, **{batch: most + 1})
    # a length that the model was not made for is not offered
    assert longest == longest_offered(fixed) or not fits(fixed, **{length: longest + 1})
    for other in (1, 3, most + 5):
        if most:
            assert asked(fixed, **{batch: other}).quantities["max_batch"].expected == most
    assert result.verdict is not None
    if not result.verdict.fits:
        assert f"{batch} {table[batch]} fits" not in result.verdict.reasons
        assert f"{length} {table[length]} fits" not in result.verdict.reasons


def longest_offered(scenario: dict[str, Any]) -> int:
    """What is offered on a card that holds everything."""
    table = {name: value for name, value in scenario.items() if name != "gpu"}
    return int(estimate({**table, "gpu_total_bytes": 2**53 - 1}).quantities["max_seq"].expected)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=one(*MODELS), gpu=one(*CARDS), generate=st.fixed_dictionaries({}, optional=SETTINGS),
)  # fmt: skip
def test_a_searched_size_fits_and_the_next_does_not(model: str, gpu: str, generate: dict[str, Any]) -> None:
    scenario = {"model": model, "gpu": gpu, "task": "generate", "generate": generate}
    try:
        estimate(scenario)
    except VramwiseError:
        return
    assert_limits_hold(scenario, "batch_size", "prompt_tokens")


@pytest.mark.parametrize(
    ("model", "gpu", "generate"),
    [
        ("gpt2", "v100-32gb", {}),
        ("llama-3.1-8b", "a100-80gb", {}),
        ("phi-3.5-mini", "h100-sxm-80gb", {"batch_size": 32}),
        ("phi-3.5-mini", "b200", {"batch_size": 32}),
        ("t5-large", "t4", {"batch_size": 100}),
        ("EleutherAI/gpt-neo-125m", "v100-32gb", {}),
        ("EleutherAI/gpt-neo-125m", "v100-32gb", {"batch_size": 169}),
        ("Qwen/Qwen1.5-7B-Chat", "t4", {"prompt_tokens": 10, "new_tokens": 1}),
    ],
)
def test_decoding_needs_more_than_its_cache(model: str, gpu: str, generate: dict[str, Any]) -> None:
    assert_limits_hold(
        {"model": model, "gpu": gpu, "task": "generate", "generate": generate}, "batch_size", "prompt_tokens"
    )


@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B", "gpt2", "google/gemma-2-9b"])
@pytest.mark.parametrize("gpu", ["rtx-4090", "t4"])
def test_a_server_of_transformers_says_requests_and_their_length(model: str, gpu: str) -> None:
    scenario = {"model": model, "gpu": gpu, "task": "serve", "serve": {"engine": "transformers", "max_num_seqs": 300}}
    assert_limits_hold(scenario, "max_num_seqs", "max_model_len")
    verdict = estimate(scenario).verdict
    assert verdict is not None
    assert not any("batch_size" in reason or "prompt_tokens" in reason for reason in verdict.reasons)


def test_an_encoder_leaves_the_decoder_its_own_positions() -> None:
    scenario = {"model": "google-t5/t5-large", "task": "generate", "generate": {"prompt_tokens": 500}}
    assert estimate(scenario).scenario["generate"]["new_tokens"] == 256
