"""Adapters that text-generation-inference, TensorRT-LLM and llama.cpp hold beside the weights, by their own rules."""

from __future__ import annotations

from typing import Any

import pytest

import vramwise

QWEN = "Qwen/Qwen2.5-7B"
LAYERS, Q, KV, WIDE, HIDDEN = 28, 3584, 512, 18944, 3584
ALL = (HIDDEN + Q) + 2 * (HIDDEN + KV) + (Q + HIDDEN) + 3 * (HIDDEN + WIDE)


def result(engine: str, **serve: Any) -> vramwise.Result:
    gpus = serve.pop("num_gpus", 2)
    return vramwise.estimate(
        {"model": QWEN, "task": "serve", "gpu": "h100-sxm-80gb", "num_gpus": gpus, "serve": {"engine": engine, **serve}}
    )


def added(engine: str, quantity: str, adapters: dict[str, Any], **serve: Any) -> int:
    plain, held = result(engine, **serve), result(engine, **serve, **adapters)
    return int(held.quantities[quantity].expected - plain.quantities[quantity].expected)


@pytest.mark.parametrize(
    ("rank", "shards", "filled"), [(16, 1, 16), (4, 1, 8), (20, 1, 32), (8, 2, 16), (64, 2, 64), (17, 2, 32)]
)
def test_tgi_fills_ranks_up_and_shares_out_both_parts(rank: int, shards: int, filled: int) -> None:
    asked = {"max_loras": 3, "max_lora_rank": rank}
    size = 3 * LAYERS * filled * ALL * 2 // shards
    assert added("tgi", "weights", asked, tensor_parallel_size=shards) == size


def test_adapters_of_some_modules_are_as_large_as_those() -> None:
    asked = {"max_loras": 1, "max_lora_rank": 16, "lora_targets": ["q_proj", "v_proj"]}
    pair = (HIDDEN + Q) + (HIDDEN + KV)
    assert added("tgi", "weights", asked) == LAYERS * 16 * pair * 2
    fused = pair + (HIDDEN + KV)  # SGLang's pool has q, k and v for any of them
    assert added("sglang", "weights", asked) == LAYERS * 16 * fused * 2


def test_tensorrt_llms_cache_is_whole_pages_of_the_widest_module() -> None:
    """getPageManagerConfig worked out by hand: q is 7,168 wide, k and v 4,096, which is a page's width."""
    asked = {"max_loras": 4, "max_lora_rank": 32, "lora_targets": ["q_proj", "v_proj"]}
    slots = 4 * 32 * LAYERS * 3 * 2  # ⌈7,168 / 4,096⌉ = 2
    a_page = 8 * (2 + 1 + 1) * LAYERS
    size = -(-slots // a_page) * a_page * 4096 * 2
    assert added("tensorrt-llm", "weights", asked) == size


def test_llama_cpp_puts_adapters_where_their_layers_lie() -> None:
    asked = {"max_loras": 2, "max_lora_rank": 8, "lora_targets": ["q_proj"]}
    layer = 4 * 2 * 8 * (HIDDEN + Q)
    assert added("llama.cpp", "total_needed", asked, gguf_quant="Q4_K_M", num_gpus=1) == LAYERS * layer
    half = added("llama.cpp", "total_needed", asked, gguf_quant="Q4_K_M", num_gpus=1, n_gpu_layers=10, fit=False)
    assert half == 9 * layer  # the tenth is the output
    several = result("llama.cpp", gguf_quant="Q4_K_M", **asked)
    held = [one for phase in several.phases for one in phase.components.children if one.name == "adapters"]
    assert {node.bytes for node in held} == {LAYERS * layer}
    assert all(len(node.children) == 2 for node in held)


@pytest.mark.parametrize("engine", ["tgi", "tensorrt-llm", "llama.cpp", "ollama", "sglang", "vllm"])
def test_no_adapter_takes_nothing(engine: str) -> None:
    assert "adapters" not in str(result(engine).to_dict()["phases"])
