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
    ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "0.20.0", 1, {}, 21.86),
    ("Qwen/Qwen3-Embedding-8B", "0.22.0", 1, {"pooling": True}, 14.11),  # the log of an embedder on another card
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


def added(name: str, node: str, **settings: object) -> int:
    serve = {"engine": "vllm", "engine_version": "0.24.0", "max_model_len": 4096, **settings}
    ranks = serve.get("tensor_parallel_size", 1)
    result = estimate({"model": name, "task": "serve", "gpu": "h100", "num_gpus": ranks, "serve": serve})
    found = result.phases[0].components.find(f"weights/{node}")
    return 0 if found is None else found.bytes


def test_gemma_4_has_rows_for_values_that_are_keys_and_for_keys_that_other_layers_make() -> None:
    """58.99 GiB in 0.23.0 and 0.26.0, where 58.70 were expected, and 15.18 in 0.22.1, where 15.00 were."""
    rows, inputs = "unfilled keys and values", "inputs of each layer"
    values = 10 * 4 * 512 * 5376 * 2
    assert (
        added("google/gemma-4-31B-it", rows) == added("google/gemma-4-31B-it", rows, engine_version="0.33.0") == values
    )
    assert added("google/gemma-4-31B-it", rows, tensor_parallel_size=2) == values // 2
    # 18 of 42 layers share their keys, three of them are full
    shared = 2 * 2 * (15 * 256 + 3 * 512) * 2560 * 2
    assert added("google/gemma-4-E4B-it", rows) == shared
    assert added("google/gemma-4-E4B-it", rows, engine_version="0.30.0") == 0
    assert added("google/gemma-4-E4B-it", inputs, max_num_batched_tokens=8192) == 8192 * 42 * 256 * 2
    assert added("google/gemma-4-31B-it", inputs) == 0
    for name, gib in (("google/gemma-4-31B-it", 58.99), ("google/gemma-4-E4B-it", 15.18)):
        serve = {"engine": "vllm", "engine_version": "0.23.0", "max_num_batched_tokens": 2048}
        result = estimate({"model": name, "task": "serve", "gpu": "rtx-pro-6000-blackwell", "serve": serve})
        assert result.quantities["weights"].expected / GIB == pytest.approx(gib, rel=3e-3)


def test_gemma_4_of_google_in_4_bits_has_groups_of_32_and_its_files_a_head() -> None:
    """Files of 23.3 GB (31B) and 8.35 GB (E2B); 0.29 printed 8.02 GiB for the E2B on a T4.

    Since 0.29 such a head is loaded, and dropped where it is the embedding's, but for models with more embeddings.
    """
    head = "output layer of the files"
    small, large = "google/gemma-4-E2B-it-qat-w4a16-ct", "google/gemma-4-31B-it-qat-w4a16-ct"
    size = 262_144 * 1536 * 2
    assert added(small, head, engine_version="0.29.0") == size
    assert added(small, head, engine_version="0.29.0", tensor_parallel_size=2) == size // 2
    assert added(small, head, engine_version="0.28.0") == added(large, head, engine_version="0.29.0") == 0
    assert added("google/gemma-4-E2B-it", head, engine_version="0.29.0") == 0
    serve = {"engine": "vllm", "engine_version": "0.29.0", "dtype": "fp16", "max_model_len": 16_384}
    result = estimate({"model": small, "task": "serve", "gpu": "T4", "serve": serve})
    assert result.quantities["weights"].expected / GIB == pytest.approx(8.02, abs=0.03)
    # the 31B's file: its layers in 4.5 bits, tables, towers, and the head that vLLM ties
    kept = estimate({"model": large, "task": "serve", "gpu": "h100", "serve": {"engine": "vllm"}})
    parts = kept.phases[0].components.find("weights")
    assert parts is not None
    stored = sum(node.bytes for node in parts.children if node.kind == "exact" and node.name != "rotary tables")
    assert stored + 262_144 * 5376 * 2 == pytest.approx(23.3e9, rel=5e-3)


def test_what_pools_has_no_head_and_samples_nothing() -> None:
    """8B without tied weights: its head is 151,936 padded rows of 4,096."""

    def weights(model: str, version: str = "0.22.0", **settings: object) -> float:
        serve = {"engine": "vllm", "engine_version": version, **settings}
        return estimate({"model": model, "task": "serve", "gpu": "h100", "serve": serve}).quantities["weights"].expected

    whole = weights("Qwen/Qwen3-8B")
    for version in ("0.9.2", "0.22.0", "0.33.0"):
        assert weights("Qwen/Qwen3-8B", version, pooling=True) == whole - 151_936 * 4096 * 2
    assert weights("Qwen/Qwen3-8B", pooling=False) == whole
    tied = "Qwen/Qwen3-Embedding-0.6B"
    assert weights(tied, pooling=True) == weights(tied)
