"""Tokens of a block of vLLM's latent caches: as the backend of the version and card wants them."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate

R1, V32, KIMI = "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.2", "nvidia/Kimi-K2.5-NVFP4"
QWEN = "Qwen/Qwen3-32B"


def tokens_of_a_block(model: str, version: str, gpu: str, **more: object) -> int:
    settings = {"engine": "vllm", "engine_version": version, "max_model_len": 8192, "tensor_parallel_size": 8, **more}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": 8, "serve": settings}
    found = estimate(scenario).quantities
    return round(found["kv_cache_tokens"].expected / found["kv_cache_blocks"].expected)


@pytest.mark.parametrize(
    ("model", "version", "gpu", "dtype", "tokens"),
    [
        (R1, "0.8.5", "H200", "auto", 64),  # platforms/cuda.py check_and_update_config: FlashMLA
        (R1, "0.17.1", "H200", "auto", 64),
        (R1, "0.18.1", "H200", "auto", 16),  # FLASH_ATTN_MLA
        (R1, "0.18.1", "H200", "fp8", 64),  # which has no cache in 8 bits: FLASHMLA
        (R1, "0.9.2", "B200", "auto", 16),
        (R1, "0.13.0", "B200", "auto", 128),  # CUTLASS_MLA
        (R1, "0.16.0", "B200", "auto", 64),  # FLASHINFER_MLA, forced to 64
        (KIMI, "0.18.1", "GB200", "fp8", 32),  # "FLASHINFER_MLA, block 32" in a log
        (V32, "0.28.0", "B200", "fp8", 64),  # DeepseekV32IndexerBackend
        (QWEN, "0.28.0", "B200", "auto", 16),
    ],
)
def test_kernels_of_latent_attention_choose_the_block(
    model: str, version: str, gpu: str, dtype: str, tokens: int
) -> None:
    assert tokens_of_a_block(model, version, gpu, kv_cache_dtype=dtype) == tokens


def test_a_block_that_is_asked_for_stays() -> None:
    assert tokens_of_a_block(R1, "0.16.0", "B200", block_size=128) == 128
