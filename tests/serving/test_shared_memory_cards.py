"""vLLM on cards that share the host's memory: what it takes of the system is charged from 0.11.1 on."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.units import GIB


def non_torch(gpu: str, version: str) -> float:
    serve = {"engine": "vllm", "engine_version": version, "max_model_len": 4096}
    result = estimate({"model": "Qwen/Qwen3-0.6B", "task": "serve", "gpu": gpu, "serve": serve})
    return result.quantities["non_torch"].expected


@pytest.mark.parametrize("gpu", ["gb10-128gb", "jetson-agx-thor-128gb", "jetson-agx-orin-64gb"])
def test_what_the_system_takes_counts_from_the_version_that_asks_it(gpu: str) -> None:
    assert non_torch(gpu, "0.11.0") < GIB / 2
    assert non_torch(gpu, "0.11.1") == non_torch(gpu, "0.13.0") == non_torch(gpu, "0.33.0") == 3 * GIB


def test_amds_shared_cards_are_asked_as_any_other() -> None:
    assert non_torch("ryzen-ai-max-plus-395", "0.25.0") < GIB / 2
