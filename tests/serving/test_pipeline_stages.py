"""Every pipeline stage of a server: its own layers, its own cache, and one number of tokens for all."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result

LLAMA = "meta-llama/Llama-3.1-8B"  # 32 layers of 4 KiB a token; embedding and head of 1,050,673,152 bytes each


def serve(engine: str, stages: int, model: str = LLAMA, **settings: object) -> Result:
    table = {"engine": engine, "pipeline_parallel_size": stages, "max_model_len": 8192, **settings}
    return estimate({"model": model, "task": "serve", "gpu": "a100-80gb", "num_gpus": stages, "serve": table})


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("stages", [2, 4])
def test_every_stage_is_a_rank(engine: str, stages: int) -> None:
    result = serve(engine, stages)
    assert [rank.name for rank in result.ranks] == [f"stage {stage}" for stage in range(stages)]
    assert max(rank.bytes for rank in result.ranks) == result.phases[-1].bytes
    assert len(serve(engine, 1).ranks) == 1


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_stage_caches_its_own_layers_alone(engine: str) -> None:
    """Half of the layers take half of a token's bytes: twice the tokens, and more for half of the weights."""
    one, two = (serve(engine, stages).quantities["kv_cache_tokens"].expected for stages in (1, 2))
    assert 2 * one < two < 2.6 * one


def test_the_ends_hold_what_the_middle_does_not() -> None:
    """Embedding in the first stage, head and sampler in the last; the cache is as large in all four."""
    first, second, third, last = (rank.bytes for rank in serve("vllm", 4).ranks)
    assert second == third
    assert first - second == pytest.approx(128256 * 4096 * 2, rel=0.01)
    assert last > first


def test_a_stage_without_the_head_samples_nothing() -> None:
    """Gemma 2's 256,000 words: the sampler is the fullest moment of the profile run, on the last stage alone."""
    result = serve("vllm", 2, "google/gemma-2-9b", engine_version="0.11.2")
    assert result.phases[-1].components.find("profile run: sampler") is not None
    first, last = (rank.bytes for rank in result.ranks)
    assert last - first > 10**9


def test_the_stage_with_the_fewest_blocks_decides_how_many_all_have():
    """Gemma 3 4B in two stages: the second has three layers without a window, the first, with the embedding, two."""
    table = {"engine": "vllm", "quantization": "awq", "pipeline_parallel_size": 2}
    asked = {"model": "google/gemma-3-4b-it", "task": "serve", "gpu": "a100-sxm-80gb", "serve": table}
    result = estimate(asked)
    assert result.capacity is not None
    assert all(rank.bytes <= result.capacity.usable_bytes for rank in result.ranks)
    assert max(rank.bytes for rank in result.ranks) == max(phase.bytes for phase in result.phases)
    assert result.ranks[1].bytes > result.ranks[0].bytes  # the first is not filled: its blocks are smaller
