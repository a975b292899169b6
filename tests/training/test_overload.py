"""Experts that get more tokens than an even share: a stated range under expert parallelism."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Result

TOKENS, TOP_K, HIDDEN, WIDE, LAYERS = 4096, 2, 4096, 14336, 32
KEPT = TOKENS * TOP_K * 2 * (HIDDEN + 3 * WIDE)  # bytes of a layer: input, gate, up and their product in bf16


def step(**train: Any) -> Result:
    settings = {"framework": "megatron", "sequence_length": TOKENS, "expert_parallel_size": 8, **train}
    return estimate({"model": "mistralai/Mixtral-8x7B-v0.1", "task": "train", "num_gpus": 8, "train": settings})


def above(found: Result) -> float:
    tensors = found.quantities["peak_allocated"]
    return tensors.high - tensors.expected


def test_an_even_share_is_expected_and_the_fullest_rank_is_in_the_range() -> None:
    even, default, three = step(moe_overload_factor=1), step(), step(moe_overload_factor=3)
    assert len({found.quantities["peak_allocated"].expected for found in (even, default, three)}) == 1
    assert above(even) < above(default) < above(three)
    wider = (above(three) ** 2 - above(even) ** 2) ** 0.5
    assert wider == pytest.approx(2 * LAYERS * KEPT, rel=0.01)
    assert any("moe_overload_factor" in note for note in default.notes)


def test_checkpointed_experts_have_one_layers_tokens_more() -> None:
    even, three = (step(checkpointing="full", moe_overload_factor=factor) for factor in (1, 3))
    assert (above(three) ** 2 - above(even) ** 2) ** 0.5 == pytest.approx(2 * KEPT, rel=0.01)


def test_capacity_ends_the_range_and_one_rank_of_experts_has_none() -> None:
    assert above(step(moe_overload_factor=3, moe_capacity_factor=1.25)) == above(step(moe_overload_factor=1.25))
    assert above(step(expert_parallel_size=1)) == above(step(expert_parallel_size=1, moe_overload_factor=1))
    assert above(step(moe_overload_factor=8)) == above(step(moe_overload_factor=1000))  # all tokens of all ranks
    with pytest.raises(ScenarioError, match="moe_capacity_factor"):
        step(moe_capacity_factor=0.5)
