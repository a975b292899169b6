"""SGLang's `kv_cache_dtype: auto` of checkpoints that state the format of their cache."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate

GEMMA = "nvidia/Gemma-4-31B-IT-NVFP4"  # ModelOpt: kv_cache_scheme of 8-bit floats
KIMI = "nvidia/Kimi-K2.5-NVFP4"
LAGUNA = "poolside/Laguna-XS.2-FP8"  # compressed-tensors: the same, which SGLang does not read


def token_bytes(model: str, version: str, gpus: int = 1, **more: Any) -> float:
    settings = {"engine": "sglang", "engine_version": version, "tensor_parallel_size": gpus, **more}
    found = estimate({"model": model, "task": "serve", "gpu": "B200", "num_gpus": gpus, "serve": settings}).quantities
    return found["kv_cache_bytes"].expected / found["kv_cache_tokens"].expected


@pytest.mark.parametrize(("model", "gpus"), [(GEMMA, 1), (KIMI, 8)])
@pytest.mark.parametrize("version", ["0.5.14", "0.5.23"])
def test_modelopts_checkpoint_has_the_cache_that_it_states(model: str, gpus: int, version: str) -> None:
    """0.5.14 model_executor/model_runner.py configure_kv_cache_dtype; 0.5.23 mem_cache/kv_cache_dtype.py."""
    fp8, whole = (token_bytes(model, version, gpus, kv_cache_dtype=asked) for asked in ("fp8_e4m3", "bf16"))
    assert fp8 == pytest.approx(whole / 2, rel=0.02)
    assert token_bytes(model, version, gpus) == pytest.approx(fp8, rel=1e-3)


@pytest.mark.parametrize(("model", "version", "gpus"), [(KIMI, "0.5.2", 8), (LAGUNA, "0.5.14", 1)])
def test_else_it_has_the_models_dtype(model: str, version: str, gpus: int) -> None:
    whole = token_bytes(model, version, gpus, kv_cache_dtype="bf16")
    assert token_bytes(model, version, gpus) == pytest.approx(whole, rel=1e-3)
