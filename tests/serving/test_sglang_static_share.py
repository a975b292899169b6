"""SGLang's mem_fraction_static: its default beside a tower, and what AITER leaves of it."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate

KIMI, QWEN, R1 = "moonshotai/Kimi-K2.5", "Qwen/Qwen3.8-27B-FP8", "deepseek-ai/DeepSeek-R1"


def pool(model: str, version: str, gpu: str, gpus: int, **more: Any) -> float:
    settings = {"engine": "sglang", "engine_version": version, "tensor_parallel_size": gpus, **more}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": gpus, "serve": settings}
    return estimate(scenario).quantities["kv_cache_bytes"].expected


def test_kimis_tower_is_weighed_by_its_own_names() -> None:
    """server_args of a start on eight MI355X print mem_fraction_static=0.8260405859375; 27 layers of 1,152."""
    asked = pool(KIMI, "0.5.9", "mi355x", 8, mem_fraction_static=0.8260405859375)
    assert pool(KIMI, "0.5.9", "mi355x", 8) == pytest.approx(asked, rel=2e-3)


@pytest.mark.parametrize(("model", "gpus"), [(QWEN, 2), (R1, 8)])
def test_aiter_leaves_0_85_of_the_share_where_requests_may_be_long(model: str, gpus: int) -> None:
    """0.5.17 server_args.py _handle_attention_backend_compatibility: a start that was given 0.85 takes 0.7225."""
    before = pool(model, "0.5.4", "mi355x", gpus, mem_fraction_static=0.85 * 0.85)
    assert pool(model, "0.5.17", "mi355x", gpus, mem_fraction_static=0.85) == pytest.approx(before, rel=0.02)


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "length"),
    [(QWEN, "H200", 2, 65536), (QWEN, "mi355x", 2, 8192), (KIMI, "mi355x", 8, 65536)],
)
def test_elsewhere_all_of_it_is_used(model: str, gpu: str, gpus: int, length: int) -> None:
    """Another card, short requests, latent attention with eight heads on a rank, which Triton runs."""
    more = {"mem_fraction_static": 0.85, "max_model_len": length}
    before = pool(model, "0.5.4", gpu, gpus, **more)
    assert pool(model, "0.5.17", gpu, gpus, **more) == pytest.approx(before, rel=0.02)


def test_a_settled_share_is_that_of_the_flag() -> None:
    """What AITER leaves is taken once: an answer's own scenario gives the same answer."""
    scenario = {"model": QWEN, "task": "serve", "gpu": "mi355x", "num_gpus": 2, "serve": {"engine": "sglang"}}
    first = estimate(scenario)
    assert estimate(first.scenario).to_dict() == {
        **first.to_dict(),
        "notes": estimate(first.scenario).to_dict()["notes"],
    }
    assert first.scenario["serve"]["mem_fraction_static"] > 0.8
