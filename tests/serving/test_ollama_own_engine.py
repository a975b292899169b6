"""ollama's own engine (0.6 to 0.29), against the sizes that its logs print and its source's rules."""

from __future__ import annotations

import pytest

import vramwise
from vramwise.estimation import model_of
from vramwise.hardware import find_gpu
from vramwise.scenario import Scenario
from vramwise.serving.llama_cpp.own_engine import attention_pool_bytes, window_cells
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


def test_layers_on_the_host_stay_there_until_0_12_8():
    """A start of 0.12.6 on an A10, 30 of 48 layers on the GPU: 190.5 MiB there, 84.0 on the host."""
    settings = {"n_ctx": 32768, "gguf_quant": "Q8_0", "n_gpu_layers": 30, "flash_attn": True, "gpu": "A10 PCIe 24GB"}
    on_gpu, on_host = (
        [counted("Qwen/Qwen3-30B-A3B", version, quantity, **settings) / MIB for version in ("0.12.6", "0.12.8")]
        for quantity in ("compute_buffer", "host_buffer")
    )
    assert on_gpu[0] == pytest.approx(190.5, abs=0.051)
    assert on_host[0] == pytest.approx(84.0, abs=0.051)
    assert on_gpu[1] > on_gpu[0] + 150  # experts of the host are copied
    assert on_host[1] < on_host[0]


def test_experts_joint_in_a_file_are_copied_apart():
    """A start of 0.13 on the CPU: 139.5 MiB."""
    found = counted("openai/gpt-oss-20b", "0.13.1", "host_buffer", gpu="none", n_ctx=16000, flash_attn=True)
    assert found / MIB == pytest.approx(139.5, rel=0.02)


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [
        (None, 16),  # a block a tile: 512 · 4 / 64
        ("RTX 4060", 24),  # 24 multiprocessors, two blocks each: 24.4 MiB
        ("T4", 42),  # 32 tiles leave most of its 40 multiprocessors idle: two blocks each
        ("RX 7900 XTX", 0),
        ("P40", 0),
    ],
)
def test_flash_attention_on_tensor_cores_takes_room_for_the_ends_of_tiles(gpu, mib):
    card = None if gpu is None else find_gpu(gpu).gpu
    model = model_of(Scenario.from_dict({"model": "google/gemma-3-1b-it", "task": "load"}))[1]
    pool = attention_pool_bytes(model, 512, card) / MIB
    assert pool == pytest.approx(mib, abs=2)
