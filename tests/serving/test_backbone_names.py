"""Quantized Nemotron-H checkpoints, whose files call `backbone.` what the class calls `model.`."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.units import GIB

LIGHTNING = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"
SUPER = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B"


def weights(model: str, gpus: int = 1) -> Any:
    settings = {"engine": "vllm", "engine_version": "0.28.0", "tensor_parallel_size": gpus}
    found = estimate({"model": model, "task": "serve", "gpu": "B300", "num_gpus": gpus, "serve": settings})
    return found.quantities["weights"].expected / GIB


def test_modules_that_a_file_names_are_those_of_the_class() -> None:
    """Its hf_quant_config.json: 23 layers' in_proj and out_proj in 8 bits, experts and head in 4, attention in 16."""
    inner, hidden, experts, layers = 1856, 2688, 128, 23
    four_bits = layers * (experts + 2) * 2 * inner * hidden * 4.5 / 8 / GIB  # a shared expert is two experts wide
    assert four_bits < weights(LIGHTNING) < four_bits + 3


@pytest.mark.parametrize(("name", "most"), [(f"{SUPER}-FP8", 0.51), (f"{SUPER}-NVFP4", 0.31)])
def test_checkpoints_of_super_are_quantized(name: str, most: float) -> None:
    assert weights(name, 4) < most * weights(f"{SUPER}-BF16", 4)
