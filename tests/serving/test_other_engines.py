"""SGLang, TensorRT-LLM, TGI and transformers as servers."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.scenario.names import ENGINES
from vramwise.serving.engines import MODULES
from vramwise.units import GIB

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def serve(engine: str, model: Any = LLAMA, gpu: str | None = "h100-sxm-80gb", total: int = 0, **serve: Any) -> Result:
    scenario: dict[str, Any] = {"model": model, "task": "serve", "serve": {"engine": engine, **serve}}
    if gpu:
        scenario["gpu"] = gpu
    if total:
        scenario["gpu_total_bytes"] = total
    return estimate(scenario)


def test_every_engine_has_a_module() -> None:
    assert set(MODULES) == set(ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("gpu", [None, "h100-sxm-80gb", "rtx-3060-12gb"])
def test_every_engine_answers_with_and_without_a_card(engine: str, gpu: str | None) -> None:
    result = serve(engine, gpu=gpu)
    assert result.peak_phase in {phase.name for phase in result.phases}
    assert result.quantities["weights"].expected > 4 * GIB
    assert result.quantities["total_needed"].expected > result.quantities["weights"].expected
    assert ("oom" in result.quantities) == (gpu is not None)
    assert (result.verdict is None) == (gpu is None)
    assert result.scenario["serve"]["engine"] == engine


@pytest.mark.parametrize("engine", ENGINES)
def test_the_answer_is_a_scenario_that_gives_the_same_answer(engine: str) -> None:
    first = serve(engine)
    again = estimate(dict(first.scenario))
    assert again.quantities == first.quantities
    assert again.scenario == first.scenario


def test_sglang_keeps_weights_and_cache_inside_its_fraction() -> None:
    result = serve("sglang", total=80 * GIB, mem_fraction_static=0.8)
    held = result.quantities["weights"].expected + result.quantities["kv_cache_bytes"].expected
    context = result.phases[0].components.find("CUDA context")
    assert context is not None
    assert held == pytest.approx((80 * GIB - context.bytes) * 0.8, rel=1e-5)


def test_sglang_takes_98304_bytes_a_token_for_qwen3_30b() -> None:
    """SGLang log: 1,669,816 tokens in 152.88 GiB, 56.98 GiB of weights."""
    result = serve("sglang", "Qwen/Qwen3-30B-A3B", total=288 * GIB, mem_fraction_static=0.9)
    cache = result.quantities
    assert cache["kv_cache_bytes"].expected == cache["kv_cache_tokens"].expected * 98304
    assert cache["weights"].expected / GIB == pytest.approx(56.98, rel=2e-3)


@pytest.mark.parametrize(("total", "chunk"), [(16, 2048), (24, 4096), (48, 4096), (80, 8192), (192, 16384)])
def test_sglang_defaults_follow_the_cards_size(total: int, chunk: int) -> None:
    table = serve("sglang", "Qwen/Qwen3-0.6B", total=total * GIB).scenario["serve"]
    assert table["chunked_prefill_size"] == chunk


@pytest.mark.parametrize(
    ("version", "reserved"),
    [("0.5.4", 512 + 1.5 * 2048 + 2 * 16 + 128), ("0.5.23", 512 + 1.5 * 4096 + 2 * 48 + 128 + 8 * 50)],
)
def test_sglang_reserves_for_graphs_of_prefills_since_it_captures_them(version: str, reserved: float) -> None:
    table = serve("sglang", "Qwen/Qwen3-0.6B", total=24 * GIB, engine_version=version).scenario["serve"]
    assert table["mem_fraction_static"] == pytest.approx((24 * 1024 - reserved) / (24 * 1024), abs=5e-4)


def test_tensorrt_llm_gives_the_cache_nine_tenths_of_what_is_free() -> None:
    result = serve("tensorrt-llm")
    cache = result.quantities
    assert cache["kv_cache_bytes"].expected / cache["kv_cache_tokens"].expected == 131072
    assert cache["kv_cache_tokens"].expected % 32 == 0


def test_an_activation_that_finds_no_room_lowers_the_fraction() -> None:
    result = serve("sglang", mem_fraction_static=0.99, chunked_prefill_size=65536)
    assert result.verdict is not None
    assert not result.verdict.fits
    assert result.verdict.reasons[1].startswith("set mem_fraction_static to 0.")


def test_transformers_serves_like_generate() -> None:
    served = serve("transformers", max_model_len=2048, max_num_seqs=4)
    generated = estimate(
        {"model": LLAMA, "task": "generate", "gpu": "h100-sxm-80gb",
         "generate": {"batch_size": 4, "prompt_tokens": 1792, "new_tokens": 256}}
    )  # fmt: skip
    assert served.quantities == generated.quantities


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "tgi"])
def test_weights_that_do_not_fit_name_the_number_of_gpus(engine: str) -> None:
    small = serve(engine, "Qwen/Qwen3-32B", gpu="rtx-4090", max_model_len=4096)
    assert small.verdict is not None
    ranks = int(small.verdict.reasons[-1].rpartition(" ")[2])
    assert small.verdict.reasons[-1] == f"set tensor_parallel_size to {ranks}"
    spread = estimate(
        {"model": "Qwen/Qwen3-32B", "task": "serve", "gpu": "rtx-4090", "num_gpus": ranks,
         "serve": {"engine": engine, "tensor_parallel_size": ranks, "max_model_len": 4096}}
    )  # fmt: skip
    assert spread.verdict is not None
    assert spread.verdict.fits, spread.verdict.reasons


def test_a_length_beyond_the_pool_names_length_and_share() -> None:
    result = serve("tensorrt-llm", gpu="rtx-3090", max_model_len=131072)
    assert result.verdict is not None
    longest = int(result.quantities["max_seq"].expected)
    assert f"set max_model_len to {longest:,}" in result.verdict.reasons
    assert serve("tensorrt-llm", gpu="rtx-3090", max_model_len=longest).quantities["max_batch"].expected == 1
