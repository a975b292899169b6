"""Buffers of vLLM's experts in 4 bits: one call of fused_marlin_moe, and the modular kernel that came after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node
from vramwise.units import GIB

TOKENS = 32_768


def profile_run(model: str, version: str, **more: object) -> Node:
    serve = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": 4, "max_num_batched_tokens": TOKENS,
             "max_model_len": 131_072, **more}  # fmt: skip
    result = estimate({"model": model, "task": "serve", "gpu": "b200", "num_gpus": 4, "serve": serve})
    return next(phase for phase in result.phases if phase.name == "profile run").components


def named(tree: Node, name: str) -> Iterator[Node]:
    if tree.name == name:
        yield tree
    for child in tree.children:
        yield from named(child, name)


@pytest.mark.parametrize(
    ("version", "kept"), [("0.15.1", False), ("0.19.0", False), ("0.22.1", False), ("0.23.0", True)]
)
def test_buffers_stay_since_the_kernel_is_modular(version: str, kept: bool) -> None:
    """compressed-tensors: make_wna16_moe_kernel in 0.23.0, `return fused_marlin_moe(...)` in 0.22.1 and before."""
    assert any(named(profile_run("moonshotai/Kimi-K2.5", version), "experts' work space")) == kept


def test_one_call_makes_two_buffers_for_all_tokens() -> None:
    """intermediate_cache13 of tokens × 8 × max(2 × 512, 7,168) and intermediate_cache2 of tokens × 8 × 512, in 16 bits;
    the modular kernel's are max(512, 7,168) and max(2 × 512, 7,168) wide."""
    assert forward("0.19.0") == pytest.approx(forward("0.15.1"), rel=0.01)
    assert forward("0.19.0") > TOKENS * 8 * (7168 + 512) * 2
    assert forward("0.23.0") - forward("0.22.1") > TOKENS * 8 * (7168 - 512) * 2 / 2


def forward(version: str) -> int:
    run = profile_run("moonshotai/Kimi-K2.5", version, max_num_seqs=1)
    return next(node.bytes for node in run.children if node.name.startswith("profile run"))


def test_a_start_on_four_b200() -> None:
    """Printed: 14.44 GiB for the cache (kaitakuai/experiments, vLLM 0.19.0); 11.2 with two kept buffers of 3.5 GiB."""
    serve = {"engine": "vllm", "engine_version": "0.19.0", "tensor_parallel_size": 4, "gpu_memory_utilization": 0.92,
             "max_num_seqs": 128, "max_model_len": 131_072, "max_num_batched_tokens": TOKENS}  # fmt: skip
    model = "moonshotai/Kimi-K2.5"
    result = estimate({"model": model, "task": "serve", "gpu": "B200", "num_gpus": 4, "serve": serve})
    assert result.quantities["kv_cache_bytes"].expected / GIB == pytest.approx(14.44, rel=0.05)
