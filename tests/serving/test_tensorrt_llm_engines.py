"""What engines of TensorRT-LLM hold beside their weights, by version, and where MXFP4 experts are padded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node, Result
from vramwise.serving.tensorrt_llm.buffers import SORTED_LOGITS, TOP_K_BYTES
from vramwise.serving.tensorrt_llm.defaults import default_batch, default_tokens

CASES = Path(__file__).parents[2] / "benchmarks/cases/serving-threads.jsonl"
LLAMA, VOCABULARY = "meta-llama/Llama-2-7b-hf", 32000
BUFFERS, PADDING = "runtime and decoder buffers", "weights/expert padding"


def serve(model: str, gpu: str, version: str, **settings: Any) -> Result:
    table = {"engine": "tensorrt-llm", "engine_version": version, **settings}
    return estimate({"model": model, "task": "serve", "gpu": gpu, "serve": table})


def term(result: Result, name: str) -> Node | None:
    return result.phases[-1].components.find(name)


@pytest.mark.parametrize("name", ["trtllm-4275-llama31-8b-fp8-5090", "trtllm-224-llama2-7b-a10"])
def test_pools_of_published_starts(name: str) -> None:
    """An engine of 2,048 sequences and 1,024 tokens; one that takes 25 inputs at once."""
    case = next(c for c in map(json.loads, CASES.read_text("utf-8").splitlines()) if c["id"] == name)
    printed = case["measured"]["kv_cache_tokens"]
    found = estimate(case["scenario"]).quantities["kv_cache_tokens"]
    assert found.expected == pytest.approx(printed, rel=0.05)
    assert found.low <= printed <= found.high


@pytest.mark.parametrize(
    ("version", "batch", "tokens"),
    [
        ((0, 5), 8, 8 * 2048),
        ((0, 8), 1, 1024),
        ((0, 10), 1, 1024),
        ((0, 11), 256, 8192),
        ((0, 14), 2048, 8192),
        ((1, 1), 2048, 8192),
    ],
)
def test_what_an_engine_is_built_for_unasked(version: tuple[int, ...], batch: int, tokens: int) -> None:
    assert default_batch(version) == batch
    assert default_tokens(version, batch, 4096) == tokens


def test_inputs_are_no_longer_than_requests() -> None:
    assert default_tokens((0, 10), 16, 512) == 16 * 512


@pytest.mark.parametrize(
    ("version", "work", "rows"),
    [("0.8", SORTED_LOGITS * 4 * VOCABULARY, 24), ("0.9", 4 * VOCABULARY + TOP_K_BYTES, 24),
     ("0.18", 4 * VOCABULARY + TOP_K_BYTES, 9)],
)  # fmt: skip
def test_every_sequence_has_rows_of_the_vocabulary_and_of_the_length(version: str, work: int, rows: int) -> None:
    node = term(serve(LLAMA, "a100-sxm-80gb", version, max_num_seqs=64, max_model_len=2048), BUFFERS)
    assert node is not None
    assert node.bytes == 64 * (4 * 4 * VOCABULARY + work + rows * 4 * 2048)


@pytest.mark.parametrize(
    ("gpu", "version", "added"),
    [
        ("gb10", "1.1", round(3 * 128 * (2944**2 - 2880**2) * 4.25 / 8) * 36),
        ("gb10", "1.0", 0),
        ("h100-sxm-80gb", "1.1", 0),
    ],
)
def test_mxfp4_experts_are_padded_on_blackwell(gpu: str, version: str, added: int) -> None:
    node = term(serve("openai/gpt-oss-120b", gpu, version), PADDING)
    assert (node.bytes if node else 0) == added


def test_a_dense_model_has_no_experts_to_pad() -> None:
    assert term(serve(LLAMA, "gb10", "1.1"), PADDING) is None
