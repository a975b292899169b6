"""ollama's own engine (0.6 to 0.29), against the sizes that its logs print and its source's rules."""

from __future__ import annotations

import pytest

import vramwise
from vramwise.serving.llama_cpp.own_engine import window_cells
from vramwise.units import MIB


def counted(model, version, quantity, gpu=None, **settings):
    scenario = {
        "model": model,
        "task": "serve",
        "num_gpus": 0 if gpu == "none" else 1,
        "serve": {"engine": "ollama", "engine_version": version, "n_parallel": 1, **settings},
    }
    if gpu not in (None, "none"):
        scenario["gpu"] = gpu
    return vramwise.estimate(scenario).quantities[quantity].expected


@pytest.mark.parametrize(
    ("memory", "slots", "cells"),
    [
        (0, 1, 1024 + 512),
        (4096, 1, 4096 + 512),
        (0, 2, 2 * 1025 + 512 + 254),  # a token more where slots share; padded to 256
        (8192, 1, None),
    ],
)
def test_sliding_layers_keep_a_window_a_slot_and_one_batch(memory, slots, cells):
    assert window_cells(1024, memory, 8192, slots, 512, 256) == cells


def test_sizes_are_as_logs_print_them():
    gpt = {"n_ctx": 8192, "flash_attn": True, "gpu": "Ryzen AI Max+ 395"}
    assert counted("openai/gpt-oss-120b", "0.11.10", "kv_cache_bytes", **gpt) == 450 * MIB
    assert counted("openai/gpt-oss-120b", "0.11.10", "compute_buffer", **gpt) / MIB == pytest.approx(121.8, abs=0.051)
    dense = {"n_ctx": 16384, "gguf_quant": "Q4_K_M"}
    assert counted("Qwen/Qwen3-32B", "0.13.2", "host_buffer", **dense) == pytest.approx(10485760, abs=1)
    routed = {"n_ctx": 4096, "gguf_quant": "Q4_K_M", "flash_attn": True, "gpu": "none"}
    assert counted("Qwen/Qwen3-30B-A3B", "0.16.3", "host_buffer", **routed) / MIB == pytest.approx(88.0, abs=0.051)


def test_versions_before_and_behind_it_go_through_llama_cpp():
    settings = {"n_ctx": 4096, "gguf_quant": "Q4_K_M"}
    own = counted("Qwen/Qwen3-1.7B", "0.12.6", "host_buffer", **settings)
    assert counted("Qwen/Qwen3-1.7B", "0.12.5", "host_buffer", **settings) > own
    assert counted("Qwen/Qwen3-1.7B", "0.30.0", "host_buffer", **settings) > own
