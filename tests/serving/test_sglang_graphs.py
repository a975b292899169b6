"""SGLang's captured graphs: decode steps, and prefills cut at attention, which are captured unasked from 0.5.10 on."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Node
from vramwise.units import GIB


def components(model: str, gpu: str, **serve: Any) -> Node:
    ranks = serve.get("pipeline_parallel_size", 1)
    serve = {"engine": "sglang", "dtype": "bf16", **serve}
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": ranks, "serve": serve}
    return estimate(scenario).phases[-1].components


def graphs(model: str, gpu: str, **serve: Any) -> dict[str, Node]:
    found = components(model, gpu, **serve).find("CUDA graphs")
    assert found is not None
    return {node.name: node for node in found.children or (found,)}


def test_a_start_on_gb300() -> None:
    """Its log (sgl-project/sglang, Qwen3-8B, 0.5.12): 0.60 GiB of 52 decode sizes, 2.32 GiB of 74 prefill sizes."""
    found = graphs("Qwen/Qwen3-8B", "gb300", engine_version="0.5.12")
    decode, prefill = found["CUDA graphs"], found["prefill graphs"]
    assert decode.inputs["sizes"] == 52
    assert (prefill.inputs["sizes"], prefill.inputs["tokens"]) == (74, 16384)
    assert decode.bytes + prefill.bytes == pytest.approx(2.92 * GIB, rel=0.03)
    assert prefill.low == 0


def test_a_captured_chunk_is_counted_once() -> None:
    eager = components("Qwen/Qwen3-8B", "h100", engine_version="0.5.12", enforce_eager=True).find("activations")
    captured = components("Qwen/Qwen3-8B", "h100", engine_version="0.5.12").find("activations")
    assert eager is not None
    assert captured is not None
    assert captured.bytes < eager.bytes == captured.high


def test_decode_sizes_end_at_the_running_requests() -> None:
    few = graphs("Qwen/Qwen3-8B", "h100", engine_version="0.5.9", max_num_seqs=4)
    assert few["CUDA graphs"].inputs["sizes"] == 3


@pytest.mark.parametrize(
    ("model", "serve"),
    [
        ("Qwen/Qwen3-8B", {"engine_version": "0.5.9"}),
        ("Qwen/Qwen3-8B", {"engine_version": "0.5.12", "pipeline_parallel_size": 2}),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"engine_version": "0.5.12"}),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", {"engine_version": "0.5.12"}),
    ],
)
def test_no_prefill_graphs(model: str, serve: dict[str, Any]) -> None:
    assert "prefill graphs" not in graphs(model, "h200", **serve)
