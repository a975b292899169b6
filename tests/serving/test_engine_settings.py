"""Settings of engines that move bytes from one place to another: each number by hand."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.interop.launch import read_command
from vramwise.models import describe
from vramwise.result import Result
from vramwise.serving.common.weights import Stages
from vramwise.serving.vllm.states import state_element_bytes
from vramwise.sources import resolve
from vramwise.units import GIB

LLAMA = "llama-3.1-8b"  # 32 layers; a layer in bf16 is 436,224,000 bytes, of which gate and up are 234,881,024
NEMOTRON = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"


def serve(model: str = LLAMA, engine: str = "vllm", **settings: Any) -> Result:
    top = {key: settings.pop(key) for key in ("num_gpus",) if key in settings}
    serve = {"engine": engine, "max_model_len": 4096, **settings}
    return estimate({"model": model, "task": "serve", "gpu": "h100", "serve": serve, **top})


def weights(result: Result) -> int:
    return int(result.quantities["weights"].expected)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_weights_on_the_host_are_whole_tensors_of_the_first_layers(engine: str) -> None:
    """6 GiB: the tensors of the first layers until there are so many bytes, and no more than one beyond."""
    moved = weights(serve(engine=engine)) - weights(serve(engine=engine, cpu_offload_gb=6))
    assert 6 * GIB <= moved < 6 * GIB + 234_881_024


def test_more_than_all_layers_cannot_move() -> None:
    """Embedding, head and the last norm are no layers: 2 · 128,256 · 4,096 · 2 bytes and little else stay."""
    left = weights(serve(cpu_offload_gb=100))
    assert 2 * 128_256 * 4096 * 2 < left < 2.2 * 128_256 * 4096 * 2


def test_the_pool_takes_what_the_weights_leave() -> None:
    pools = [serve(cpu_offload_gb=size).quantities["kv_cache_bytes"].expected for size in (0, 6)]
    assert pools[1] - pools[0] == pytest.approx(6 * GIB, rel=0.05)


def test_stages_are_dealt_out_as_each_engine_does() -> None:
    assert Stages(4).spans(10) == ((0, 2), (2, 5), (5, 8), (8, 10))
    assert Stages(4, last_first=True).spans(10) == ((0, 2), (2, 4), (4, 7), (7, 10))
    assert Stages(2, (20, 12)).spans(32) == ((0, 20), (20, 32))


def test_the_heaviest_stage_has_the_layers_that_it_was_given() -> None:
    even, uneven = (
        weights(serve(num_gpus=2, pipeline_parallel_size=2, pipeline_layer_partition=layers))
        for layers in ([16, 16], [20, 12])
    )
    assert uneven - even == pytest.approx(4 * 436_224_000, rel=1e-3)


def test_a_partition_of_other_layers_is_refused() -> None:
    with pytest.raises(ScenarioError, match="expected 2 numbers that make 32, got 20\\+20"):
        serve(num_gpus=2, pipeline_parallel_size=2, pipeline_layer_partition=[20, 20])


def test_graphs_of_listed_batches() -> None:
    graphs = [
        serve(cudagraph_capture_sizes=sizes).quantities["cuda_graph"].expected for sizes in ([1, 2, 4], [1, 2, 4, 8])
    ]
    assert 0 < graphs[0] < graphs[1] < serve().quantities["cuda_graph"].expected


def test_towers_are_not_loaded_for_text_alone() -> None:
    model = describe(resolve("qwen2.5-vl-7b").config)
    whole, text = (weights(serve("qwen2.5-vl-7b", language_model_only=only)) for only in (False, True))
    assert whole - text == pytest.approx(2 * (model.parts["vision"] + model.parts["projector"]), rel=1e-2)


def test_a_profile_run_without_images_holds_what_the_text_model_holds() -> None:
    whole, skipped, text = (
        serve("qwen2.5-vl-7b", **settings).quantities["activation_peak"].expected
        for settings in ({}, {"skip_mm_profiling": True}, {"language_model_only": True})
    )
    assert skipped == text < whole


@pytest.mark.parametrize(
    ("asked", "version", "expected"),
    [
        ("auto", (0, 12), None),  # the model's dtype
        ("auto", (0, 13), 4),  # mamba_ssm_cache_dtype of its config
        ("fp16", (0, 33), 2),
    ],
)
def test_states_of_nemotron_h(asked: str, version: tuple[int, ...], expected: int | None) -> None:
    assert state_element_bytes(describe(resolve(NEMOTRON).config), asked, version) == expected


def test_states_of_kimi_delta_attention_are_in_fp32() -> None:
    model = describe(resolve("moonshotai/Kimi-K3").config)
    assert state_element_bytes(model, "auto", (0, 33)) == 4


def test_windowed_layers_hold_the_share_that_is_asked_for() -> None:
    """Of Gemma 3's layers five in six are windowed: the fewer tokens they hold, the more the pool has room for."""
    few, many = (
        serve("gemma-3-12b-it", "sglang", engine_version="0.5.4", swa_full_tokens_ratio=ratio)
        .quantities["kv_cache_tokens"]
        .expected
        for ratio in (0.2, 1.0)
    )
    assert few == pytest.approx(many * 6 / (1 + 5 * 0.2), rel=0.01)


def test_repacked_experts_are_not_copied_to_the_card() -> None:
    host = {"variant": "ik_llama.cpp", "gguf_quant": "Q4_K_M", "n_ctx": 4096, "cpu_moe": True, "fused_moe": 0}
    copied, repacked = (
        serve("mixtral-8x7b", "llama.cpp", max_model_len=None, run_time_repack=asked, **host)
        .quantities["compute_buffer"]
        .expected
        for asked in (False, True)
    )
    assert repacked < copied


@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        ("vllm serve llama-3.1-8b --cpu-offload-gb 4", "cpu_offload_gb", 4.0),
        ("vllm serve llama-3.1-8b --cudagraph-capture-sizes 1 2 4", "cudagraph_capture_sizes", [1, 2, 4]),
        ("""vllm serve llama-3.1-8b --compilation-config '{"cudagraph_capture_sizes": [1, 2]}'""",
         "cudagraph_capture_sizes", [1, 2]),
        ("vllm serve llama-3.1-8b --language-model-only", "language_model_only", True),
        ("vllm serve llama-3.1-8b --skip-mm-profiling", "skip_mm_profiling", True),
        ("vllm serve llama-3.1-8b --runner pooling", "pooling", True),
        ("vllm serve llama-3.1-8b --convert none --task embed", "pooling", True),
        ("vllm serve llama-3.1-8b --runner generate", "pooling", False),
        ("vllm serve llama-3.1-8b --mamba-ssm-cache-dtype float32", "mamba_ssm_cache_dtype", "float32"),
        ("VLLM_PP_LAYER_PARTITION=20,12 vllm serve llama-3.1-8b -pp 2", "pipeline_layer_partition", "20,12"),
        ("python -m sglang.launch_server --model-path m --cuda-graph-bs 1 2", "cudagraph_capture_sizes", [1, 2]),
        ("python -m sglang.launch_server --model-path m --swa-full-tokens-ratio 0.5", "swa_full_tokens_ratio", 0.5),
        ("llama-server -m m.gguf -rtr", "run_time_repack", True),
    ],
)  # fmt: skip
def test_commands_say_them(command: str, key: str, value: object) -> None:
    table = read_command(shlex.split(command)).scenario["serve"]
    assert isinstance(table, dict)
    assert table[key] == value
