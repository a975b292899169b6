"""Copies of a model whose tokens meet at its experts: what a rank gathers, computes and holds outside torch."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node, Result

TOKENS, HIDDEN, INNER, CHOSEN = 8192, 2048, 768, 8
"""Of a step, and of Qwen3-30B-A3B."""


def started(model: str = "Qwen/Qwen3-30B-A3B", **serve: Any) -> Result:
    copies = serve.get("data_parallel_size", 1)
    return estimate({
        "model": model, "task": "serve", "gpu": "h200-sxm-141gb", "num_gpus": copies,
        "serve": {"engine": "vllm", "engine_version": "0.10.1", "max_num_batched_tokens": TOKENS, "max_num_seqs": 16,
                  "enforce_eager": True, **serve},
    })  # fmt: skip


def layer(result: Result) -> Node:
    phase = next(phase for phase in result.phases if phase.name == "profile run")
    run = next(node for node in phase.components.children if node.name == "profile run: forward")
    return next(node for node in run.children if node.name == "layer")


@pytest.mark.parametrize("copies", [2, 4])
def test_experts_see_the_tokens_of_all_copies(copies: int) -> None:
    """vLLM 0.10.1 layers/fused_moe/layer.py forward_impl gathers hidden states of all data ranks (all2all.py
    naive_multicast); fused_moe.py fused_experts_impl takes 32,768 of them at once."""
    alone, together = layer(started()), layer(started(data_parallel_size=copies, expert_parallel=True))
    buffers = (copies - 1) * TOKENS * CHOSEN * (INNER + HIDDEN) * 2
    assert together.bytes - alone.bytes == buffers + copies * TOKENS * HIDDEN * 2


def test_no_more_than_a_chunk_of_them_runs_at_once() -> None:
    """VLLM_FUSED_MOE_CHUNK_SIZE is 32,768 there, whatever its annotation says."""
    four, eight = (layer(started(data_parallel_size=copies, expert_parallel=True)).bytes for copies in (4, 8))
    assert eight - four == 4 * TOKENS * HIDDEN * 2


def test_experts_in_8_bits_read_copies_in_8_bits() -> None:
    """fused_moe.py moe_kernel_quantize_input of the hidden states and of what the function made."""
    wide = layer(started())
    narrow = layer(started("Qwen/Qwen3-30B-A3B-FP8"))
    assert narrow.bytes - wide.bytes == round(TOKENS * (HIDDEN + CHOSEN * INNER) * (1 + 4 / 128))


def test_copies_that_meet_talk_over_nccl_and_copies_of_a_dense_model_do_not() -> None:
    def outside(result: Result) -> float:
        return result.quantities["non_torch"].expected

    alone = outside(started())
    assert outside(started(data_parallel_size=8, expert_parallel=True)) > alone
    assert outside(started("Qwen/Qwen3-8B", data_parallel_size=8)) == outside(started("Qwen/Qwen3-8B"))
