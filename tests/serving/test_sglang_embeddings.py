"""Token tables that SGLang's classes do not cut."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate

GIB = 2**30


def weights(model: str, ranks: int) -> float:
    serve = {"engine": "sglang", "engine_version": "0.5.12", "tensor_parallel_size": ranks}
    scenario = {"model": model, "task": "serve", "gpu": "H200", "num_gpus": ranks, "serve": serve}
    return estimate(scenario).quantities["weights"].expected


@pytest.mark.parametrize(
    ("model", "table"),
    [("google/gemma-3-27b-it", 262_208 * 5376), ("google/gemma-4-E4B-it", 262_144 * (2560 + 42 * 256))],
)
def test_gemmas_tables_are_whole_on_each_rank(model: str, table: int) -> None:
    """Two ranks hold the tables twice, so that they save half of all else at most."""
    one, two = weights(model, 1), weights(model, 2)
    assert two - table * 2 > (one - table * 2) / 2 - 0.05 * GIB


def test_gemma_4_on_four_nodes() -> None:
    """A rank of the 26B in 16 bit loads 13.68 GiB (vroomfondel/dgxarley, April 2026)."""
    assert weights("google/gemma-4-26B-A4B-it", 4) == pytest.approx(13.68 * GIB, rel=0.03)


def test_others_cut_theirs() -> None:
    one, two = weights("Qwen/Qwen3-32B", 1), weights("Qwen/Qwen3-32B", 2)
    assert two == pytest.approx(one / 2, rel=0.01)
