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


@pytest.mark.parametrize("version", [(0, 27, 0), (0, 28, 0), (0, 29, 0), (0, 33, 0)])
def test_from_0_27_a_block_holds_the_keys_alone(version: tuple[int, ...]) -> None:
    """vLLM 0.27.0 and 0.28.0 _get_packed_kv_cache_layout: the largest group; later _get_packed_kv_cache_groups."""
    found = compressed_pool(FLASH, version, 256)
    assert found is not None
    assert found.block_bytes == 21 * (37440 + 8640) + 20 * 1728


@pytest.mark.parametrize("version", [(0, 23, 0), (0, 24, 0), (0, 26, 0)])
def test_from_0_23_a_block_has_as_many_places_of_each_page_as_the_largest_group(version: tuple[int, ...]) -> None:
    """vLLM 0.23.0 to 0.26.0 kv_cache_utils.py _bucket_layers_by_page_size: 22 layers of windows, 21 and 20 of keys."""
    found = compressed_pool(FLASH, version, 256)
    assert found is not None
    assert found.block_bytes == 22 * 37440 + 21 * 8640 + 20 * 1728


def test_a_pool_of_0_23_prints_what_a_start_on_two_h200_nvl_printed() -> None:
    """A public start: Available KV cache memory: 32.08 GiB, 2,175,276 tokens, 8.30 requests of 262,144 tokens.

    get_max_concurrency_for_kv_cache_config weighs each group's pages with the bytes of its own (0.22.0 to 0.26.0).
    """
    pool = compressed_pool(FLASH, (0, 23, 0), 256)
    assert pool is not None
    windows, light, heavy = 131 * 43 * 37440, 2051 * 21 * (37440 + 8640), 1041 * 20 * 37440
    request = -(-(1024 * 1002240 + windows + light + heavy) // 1002240)
    blocks = pool.num_blocks(round(32.08 * GIB))
    assert pool.printed_concurrency(blocks, 262144, 8192) == blocks / request
    assert int(pool.printed_concurrency(blocks, 262144, 8192) * 262144) == pytest.approx(2175276, rel=2e-4)
    later = compressed_pool(FLASH, (0, 27, 0), 256)
    assert later is not None
    assert later.printed_concurrency(blocks, 262144, 8192) == later.max_concurrency(blocks, 262144, 8192)


@pytest.mark.parametrize("kind", ["heavily_compressed_attention", "compressed_sparse_attention"])
def test_layers_of_one_kind_alone_have_a_pool_too(kind: str) -> None:
    config = {**resolve("deepseek-ai/DeepSeek-V4-Flash").config, "num_hidden_layers": 2, "layer_types": [kind] * 2}
    pool = compressed_pool(describe(config, ""), (0, 27, 0), 256)
    assert pool is not None
    assert pool.num_blocks(GIB) > 0


def test_models_without_compressed_keys_have_no_such_pool() -> None:
    assert compressed_pool(describe(resolve("Qwen/Qwen3-8B").config, ""), (0, 33, 0), 256) is None


def test_the_estimate_says_what_one_request_needs() -> None:
    """What it needs counts pages alike; the concurrency printed beside it weighs them (0.22.0 kv_cache_utils.py)."""
    result = serve(engine_version="0.22.0", max_model_len=30000, max_num_batched_tokens=16384, block_size=256)
    pool, many = result.quantities["kv_cache_bytes"].expected, result.quantities["max_concurrency"].expected
    pages = 118 * 1002240 + 259 * 43 * 37440 + 4099 * 21 * (37440 + 8640) + 2065 * 20 * 37440
    assert pool / many / GIB == pytest.approx(-(-pages // 1002240) * 22 * (37440 + 8640 + 1728) / GIB, rel=1e-4)


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


@pytest.mark.parametrize(
    ("name", "gpu", "ranks", "version", "printed"),
    [
        ("deepseek-ai/DeepSeek-V4-Flash", "h200-nvl-141gb", 2, "0.23.0", 74.08),
        ("sgl-project/DeepSeek-V4-Flash-FP8", "mi355x", 8, "0.26.0", 35.15),
    ],
)
def test_compressors_stay_whole_and_tables_are_in_fp32(
    name: str, gpu: str, ranks: int, version: str, printed: float
) -> None:
    """Two logs: "Model loading took 74.08 GiB" on two cards, 35.15 GiB on each of eight; 1 and 3 % less without."""
    table = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": ranks, "kv_cache_dtype": "fp8"}
    found = estimate({"model": name, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": table})
    assert found.quantities["weights"].expected == pytest.approx(printed * GIB, rel=0.004)
    tables = found.phases[0].components.find("weights/rotary tables")
    assert tables is not None
    assert tables.bytes == 2 * 1_048_576 * 64 * 4


def test_streams_of_a_batch_are_kept_for_drafts_alone_from_0_27() -> None:
    def streams(version: str, **settings: Any) -> float:
        node = serve(engine_version=version, max_num_batched_tokens=4096, **settings).phases[0].components
        found = node.find("weights/streams of a batch")
        assert found is not None
        return found.bytes

    choices = 4096 * 512 * 4
    assert streams("0.26.0") == choices + 4096 * 4 * 4096 * 2
    assert streams("0.27.1") == choices
    assert streams("0.27.1", speculative={"method": "mtp", "num_tokens": 1}) == streams("0.26.0")
