"""What loading frees of sleep mode's pool, and vLLM up to 0.26 takes for memory of torch's."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.units import GIB

LLAMA, GEMMA = "meta-llama/Llama-3.2-1B-Instruct", "google/gemma-4-12B-it-qat-w4a16-ct"


def started(model: str, version: str, sleep_level: int | None = 1, **settings: object) -> Result:
    serve = {"engine": "vllm", "engine_version": version, "max_model_len": 4096, **settings}
    if sleep_level:
        serve["sleep_level"] = sleep_level
    ranks = serve.get("tensor_parallel_size", 1)
    return estimate({"model": model, "task": "serve", "gpu": "h100", "num_gpus": ranks, "serve": serve})


def gained(model: str, version: str, **settings: object) -> float:
    awake = started(model, version, None, **settings).quantities["kv_cache_bytes"]
    return started(model, version, **settings).quantities["kv_cache_bytes"].expected - awake.expected


@pytest.mark.parametrize(
    ("model", "version", "gain"),
    [
        (LLAMA, "0.26.0", 128_256 * 2048 * 2),
        (LLAMA, "0.11.0", 128_256 * 2048 * 2),
        (LLAMA, "0.10.2", 0),  # freed segments stay mapped
        (LLAMA, "0.27.0", 0),  # what the process took is counted
        ("meta-llama/Llama-3.1-8B-Instruct", "0.26.0", 0),  # its head is its own
        ("Qwen/Qwen3-0.6B", "0.26.0", 0),  # tied, and never made
        (GEMMA, "0.26.0", 262_144 * 3840 * 2),
    ],
)
def test_a_tied_head_that_is_made_and_dropped_goes_to_the_cache(model: str, version: str, gain: int) -> None:
    assert gained(model, version) == gain


def test_each_rank_makes_its_rows() -> None:
    assert gained(LLAMA, "0.26.0", tensor_parallel_size=2) == 128_256 * 2048


def test_it_says_so() -> None:
    words = "sleep mode leaves the KV cache"
    assert any(words in note for note in started(LLAMA, "0.26.0").notes)
    assert not any(words in note for note in started(LLAMA, "0.27.0").notes)
    assert not any(words in note for note in started("Qwen/Qwen3-0.6B", "0.26.0").notes)


def test_a_published_start_of_an_assistant_on_an_a10() -> None:
    """11.13 GiB at utilization 0.80, where 9.1 were expected without this."""
    serve = {"engine": "vllm", "engine_version": "0.26.0", "max_model_len": 65_536, "gpu_memory_utilization": 0.8,
             "limit_mm_per_prompt": {"image": 4, "audio": 1}, "sleep_level": 1}  # fmt: skip
    result = estimate({"model": GEMMA, "task": "serve", "gpu": "A10 PCIe 24GB", "serve": serve})
    assert result.quantities["kv_cache_bytes"].expected / GIB == pytest.approx(11.13, abs=0.25)
