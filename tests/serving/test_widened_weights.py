"""What vLLM keeps wider than checkpoints: scales of 8-bit blocks for Marlin's kernels, routers in fp32."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node
from vramwise.units import GIB

MINIMAX = "MiniMaxAI/MiniMax-M2.7"


def weights_of(model: str, gpu: str, version: str, ranks: int) -> Node:
    serve = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": ranks, "max_model_len": 4096}
    result = estimate({"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": serve})
    found = result.phases[0].components.find("weights")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "version", "ranks", "printed"),
    [("a100-sxm-80gb", "0.19.0", 4, 54.58), ("h200", "0.20.0", 2, 107.31), ("b200", "0.20.0", 2, 107.32)],
)
def test_one_checkpoint_on_cards_with_and_without_8_bit_products(
    gpu: str, version: str, ranks: int, printed: float
) -> None:
    assert weights_of(MINIMAX, gpu, version, ranks).bytes / GIB == pytest.approx(printed, rel=1e-3)


def test_marlin_has_a_scale_for_each_row_where_a_block_has_one() -> None:
    scales = weights_of(MINIMAX, "rtx-3090", "0.19.0", 4).find("scales for Marlin")
    assert scales is not None
    experts = 62 * 256 * 3 * (1536 // 4) * 3072  # elements: a rank has a quarter of each
    attention = 62 * 128 * (2 * 48 + 2 * 8) // 4 * 3072
    assert scales.bytes == pytest.approx((experts + attention) * (2 / 128 - 4 / 128**2), rel=1e-6)


@pytest.mark.parametrize(("gpu", "version"), [("h100", "0.19.0"), ("a100-sxm-80gb", "0.8.5"), ("l40s", "0.19.0")])
def test_other_cards_and_versions_keep_a_block_s_scale(gpu: str, version: str) -> None:
    assert weights_of("Qwen/Qwen3-8B-FP8", gpu, version, 1).find("scales for Marlin") is None


def test_routers_of_some_types_are_made_in_fp32() -> None:
    routers = weights_of(MINIMAX, "h200", "0.20.0", 2).find("routers in fp32")
    assert routers is not None
    assert routers.bytes == pytest.approx(62 * 256 * 3072 * 2, rel=1e-3)
    assert weights_of("Qwen/Qwen3-30B-A3B", "h200", "0.20.0", 1).find("routers in fp32") is None
