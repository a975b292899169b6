"""DeepSeek V4's cache in vLLM against the error message of a public issue, and tokens that windows keep in flight."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.models import describe
from vramwise.result import Result
from vramwise.serving.vllm.compressed import compressed_pool
from vramwise.sources import resolve
from vramwise.units import GIB

FLASH = describe(resolve("deepseek-ai/DeepSeek-V4-Flash").config, "")


def serve(model: str = "deepseek-ai/DeepSeek-V4-Flash", **settings: Any) -> Result:
    table = {"engine": "vllm", "tensor_parallel_size": 2, "kv_cache_dtype": "fp8", **settings}
    return estimate({"model": model, "task": "serve", "gpu": "h200", "num_gpus": 2, "serve": table})


def test_a_request_of_30000_tokens_takes_6800_blocks() -> None:
    """vllm-project/vllm issue 44376, 0.22, 16,384 tokens a step: 6.66 GiB are needed, 5.44 GiB hold 13,528 tokens."""
    pool = compressed_pool(FLASH, (0, 22, 0), 256)
    assert pool is not None
    # pages of the keys, of the indexer's, and of the heavily compressed keys, in 22 layers' places
    assert pool.block_bytes == 22 * (37440 + 8640 + 1728)
    # all keys; two groups of windows; states of both compressors, in small pages
    assert pool.blocks_per_request(30000, 16384) == 118 + 2 * 259 + 4099 + 2065
    assert round(pool.block_bytes * 6800 / GIB, 2) == 6.66
    blocks = pool.num_blocks(round(5.4435 * GIB))
    assert pool.longest_request(blocks, 16384, 30000) == pytest.approx(13528, abs=16)


def test_from_0_29_a_block_holds_the_keys_alone() -> None:
    found = compressed_pool(FLASH, (0, 33, 0), 256)
    assert found is not None
    assert found.block_bytes == 21 * (37440 + 8640) + 20 * 1728
    assert compressed_pool(describe(resolve("Qwen/Qwen3-8B").config, ""), (0, 33, 0), 256) is None


def test_the_estimate_says_what_one_request_needs() -> None:
    result = serve(engine_version="0.22.0", max_model_len=30000, max_num_batched_tokens=16384, block_size=256)
    pool, many = result.quantities["kv_cache_bytes"].expected, result.quantities["max_concurrency"].expected
    assert pool / many / GIB == pytest.approx(6.66, abs=0.01)


@pytest.mark.parametrize(
    ("version", "stages", "batches"), [("0.25.0", 1, 1), ("0.26.0", 1, 2), ("0.26.0", 2, 2), ("0.33.0", 2, 3)]
)
def test_windows_keep_the_tokens_of_every_batch_in_flight(version: str, stages: int, batches: int) -> None:
    table = {"engine": "vllm", "engine_version": version, "pipeline_parallel_size": stages, "max_model_len": 131072,
             "max_num_batched_tokens": 8192, "kv_cache_memory_bytes": 8 * GIB}  # fmt: skip
    result = estimate(
        {"model": "openai/gpt-oss-20b", "task": "serve", "gpu": "h100", "num_gpus": stages, "serve": table}
    )
    layers = 24 // stages
    page = 16 * 8 * 64 * 2 * 2
    blocks = 8 * GIB // page // (layers // 2)
    request = 131072 // 16 + (-(-(127 + batches * 8192) // 16) + 1)
    assert result.quantities["max_concurrency"].expected == pytest.approx(blocks / request, rel=1e-6)
