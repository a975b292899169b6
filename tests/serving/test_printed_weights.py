"""Weights that public start-up logs of vLLM print: rotary tables by checkpoint and by type, towers left out."""

from __future__ import annotations

import pytest

from vramwise.estimation import estimate
from vramwise.units import GIB

BLIND = {"image": 0, "video": 0}

# model, version, ranks, settings, GiB printed
LOGS = [
    ("Qwen/Qwen2.5-1.5B-Instruct", "0.9.2", 1, {}, 2.8833),
    ("Qwen/Qwen2.5-14B-Instruct", "0.9.2", 4, {}, 6.9461),
    ("Qwen/Qwen2.5-32B-Instruct", "0.6.3.post1", 4, {}, 15.3916),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", "0.10.2", 1, {}, 56.9342),
    ("Qwen/Qwen3-30B-A3B", "0.12.0", 2, {}, 28.4571),
    ("meta-llama/Meta-Llama-3-8B-Instruct", "0.13.0", 4, {}, 3.7418),
    ("Qwen/Qwen3.5-27B", "0.19.0", 4, {}, 13.01),  # four times 262,144 positions
    ("Qwen/Qwen3.5-9B", "0.19.0", 4, {}, 4.52),
    ("Qwen/Qwen3-VL-2B-Instruct", "0.11.0", 1, {"dtype": "fp16", "limit_mm_per_prompt": BLIND}, 3.4554),
]


@pytest.mark.parametrize(("name", "version", "ranks", "settings", "printed"), LOGS)
def test_printed_weights(name: str, version: str, ranks: int, settings: dict[str, object], printed: float) -> None:
    serve = {"engine": "vllm", "engine_version": version, "tensor_parallel_size": ranks, **settings}
    result = estimate({"model": name, "task": "serve", "gpu": "a100-sxm-80gb", "num_gpus": ranks, "serve": serve})
    assert result.quantities["weights"].expected / GIB == pytest.approx(printed, rel=1e-3)


def table_bytes(name: str, version: str, engine: str = "vllm") -> int:
    serve = {"engine": engine, "engine_version": version, "max_model_len": 4096}
    result = estimate({"model": name, "task": "serve", "gpu": "h100", "serve": serve})
    node = result.phases[0].components.find("weights/rotary tables")
    assert node is not None
    return node.bytes


def test_positions_of_time_height_and_width_have_longer_tables() -> None:
    assert table_bytes("Qwen/Qwen3-VL-4B-Instruct", "0.11.0") == 4 * 262144 * 128 * 2
    assert table_bytes("Qwen/Qwen3-VL-4B-Instruct", "0.33.0") == 262144 * 128 * 2
    assert table_bytes("Qwen/Qwen2.5-VL-7B-Instruct", "0.33.0") == 4 * 128000 * 128 * 2
    assert table_bytes("Qwen/Qwen3-VL-4B-Instruct", "0.5.4", "sglang") == 262144 * 128 * 4


def test_sglangs_tables_are_in_fp32_since_they_are_its_own() -> None:
    llama = "meta-llama/Llama-3.1-8B-Instruct"
    assert table_bytes(llama, "0.4.1", "sglang") == 131072 * 128 * 2
    assert table_bytes(llama, "0.4.2", "sglang") == 131072 * 128 * 4


def test_a_tower_stays_where_one_of_its_kinds_may_come() -> None:
    def weights(model: str, version: str, limits: dict[str, int] | None) -> float:
        serve = {"engine": "vllm", "engine_version": version, "limit_mm_per_prompt": limits}
        return estimate({"model": model, "task": "serve", "gpu": "h100", "serve": serve}).quantities["weights"].expected

    whole = weights("Qwen/Qwen3-VL-2B-Instruct", "0.11.0", None)
    assert weights("Qwen/Qwen3-VL-2B-Instruct", "0.11.0", {"image": 0}) == whole
    assert weights("Qwen/Qwen3-VL-2B-Instruct", "0.9.2", BLIND) == weights("Qwen/Qwen3-VL-2B-Instruct", "0.9.2", None)
    gemma = weights("google/gemma-3-4b-it", "0.15.1", None)
    assert weights("google/gemma-3-4b-it", "0.15.1", {"image": 0}) < gemma - 0.4 * GIB  # it reads no video
    assert weights("google/gemma-3-4b-it", "0.14.0", {"image": 0}) > gemma - 0.1 * GIB
