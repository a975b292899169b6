"""SGLang's pool of adapters: A and B of every linear layer, made before the cache (0.5.23 lora/mem_pool.py)."""

from __future__ import annotations

from typing import Any

import pytest

import vramwise

QWEN = "Qwen/Qwen2.5-7B"
OF_A_RANK = 28 * (
    (3584 + 3584) * 2  # q and o
    + (3584 + 512) * 2  # k and v
    + (3584 + 18944) * 3  # gate, up and down
)


def weights(model: str = QWEN, **serve: Any) -> int:
    scenario = {"model": model, "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": 2, "serve": serve}
    return int(vramwise.estimate(scenario).quantities["weights"].expected)


@pytest.mark.parametrize(("asked", "slots", "rank"), [
    ({"max_loras": 4, "max_lora_rank": 64}, 4, 64),
    ({"max_loras": 3}, 3, 16),
    ({"max_lora_rank": 32}, 8, 32),
])  # fmt: skip
def test_slots_of_every_linear_layer(asked: dict[str, Any], slots: int, rank: int) -> None:
    assert weights(engine="sglang", **asked) - weights(engine="sglang") == slots * rank * OF_A_RANK * 2


def test_ranks_share_what_is_cut() -> None:
    """Of a layer cut by outputs A stays whole, of one cut by inputs B."""
    whole = {"engine": "sglang", "max_loras": 4, "max_lora_rank": 64}
    added = [
        weights(tensor_parallel_size=n, **whole) - weights(engine="sglang", tensor_parallel_size=n) for n in (1, 2)
    ]
    assert added[0] / 2 < added[1] < added[0]


def test_experts_adapters_are_said_to_be_left_out() -> None:
    serve = {"engine": "sglang", "max_loras": 2}
    for model, said in ((QWEN, False), ("Qwen/Qwen3-30B-A3B", True)):
        notes = vramwise.estimate({"model": model, "task": "serve", "serve": serve}).notes
        assert any("adapters of experts are not counted" in note for note in notes) is said
