"""What llama.cpp's --fit and ollama put on the host by themselves: the model runs, and the verdict says how."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result
from vramwise.units import GIB, MIB

QWEN_32B, QWEN_30B_A3B = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B"


def serve(model: str, gpu: str = "rtx-4060", gpus: int = 1, **settings: Any) -> Result:
    scenario = {"model": model, "task": "serve", "gpu": gpu, "num_gpus": gpus}
    return estimate({**scenario, "serve": {"engine": "llama.cpp", "n_ctx": 4096, **settings}})


@pytest.mark.parametrize(
    "settings", [{}, {"engine": "ollama"}, {"engine": "ollama", "engine_version": "0.12.0"}], ids=str
)
def test_layers_without_room_go_to_the_host_and_the_model_runs(settings: dict[str, Any]) -> None:
    result = serve(QWEN_32B, "rtx-3060-12gb", **settings)
    assert result.verdict is not None
    assert result.verdict.fits
    assert result.quantities["oom"].expected is False
    layers = result.scenario["serve"]["n_gpu_layers"]
    assert 0 < layers < 65
    assert any(f"{layers} of 65 layers on the GPU" in reason for reason in result.verdict.reasons)
    assert result.quantities["weights_host"].expected > 2 * GIB
    held = sum(result.quantities[side].expected for side in ("weights_gpu", "weights_host"))
    assert held >= result.quantities["weights"].expected


def test_a_gibibyte_stays_free_and_one_layer_more_would_not() -> None:
    result = serve(QWEN_32B, "rtx-3060-12gb")
    assert result.capacity is not None
    room = result.capacity.usable_bytes - GIB
    layers = result.scenario["serve"]["n_gpu_layers"]
    more = serve(QWEN_32B, "rtx-3060-12gb", n_gpu_layers=layers + 1)
    assert result.quantities["total_needed"].expected <= room < more.quantities["total_needed"].expected


@pytest.mark.parametrize(
    ("settings", "slots", "unified"),
    [
        ({"engine_version": "b7399"}, 1, True),
        ({"engine_version": "b7400"}, 4, True),
        ({"engine_version": "b7400", "kv_unified": False}, 4, False),
        ({"engine_version": "b7400", "n_parallel": 4}, 4, False),
        ({"variant": "ik_llama.cpp"}, 1, True),
    ],
)
def test_slots_that_nobody_asked_for(settings: dict[str, Any], slots: int, unified: bool) -> None:
    taken = serve("gpt2", **settings).scenario["serve"]
    assert (taken["n_parallel"], taken["kv_unified"]) == (slots, unified)


def test_experts_go_first() -> None:
    """common/fit.cpp: dense weights of all layers on the GPU, experts overflow to the host."""
    result = serve(QWEN_30B_A3B, "rtx-3060-12gb")
    assert result.verdict is not None
    assert result.verdict.fits
    assert 0 < result.scenario["serve"]["n_cpu_moe"] < 48
    assert any("experts of" in reason for reason in result.verdict.reasons)


@pytest.mark.parametrize(
    "settings",
    [{"fit": False}, {"n_gpu_layers": 65}, {"override_tensor": ["x=CPU"]}, {"engine_version": "b7000"},
     {"variant": "ik_llama.cpp"}],
    ids=str,
)  # fmt: skip
def test_what_was_set_by_hand_is_left_alone(settings: dict[str, Any]) -> None:
    result = serve(QWEN_32B, "rtx-3060-12gb", **settings)
    assert result.verdict is not None
    assert not result.verdict.fits


def test_cards_share_what_fits_them() -> None:
    result = serve("meta-llama/Llama-3.3-70B-Instruct", "rtx-3060-12gb", 2)
    assert result.verdict is not None
    assert result.verdict.fits
    assert all(rank.bytes <= result.capacity.usable_bytes for rank in result.ranks if result.capacity)


def test_a_model_that_fits_stays_whole() -> None:
    result = serve("Qwen/Qwen3-4B")
    assert result.scenario["serve"]["n_gpu_layers"] == 37
    assert not any("on the host" in note for note in result.notes)


def test_experts_published_in_mxfp4_stay_so() -> None:
    """ollama list: gpt-oss:20b has 13793441244 bytes; ggml-org's GGUF of it 12.1 GB (the rest in Q8_0)."""
    sizes = {
        engine: serve("openai/gpt-oss-20b", "rtx-4090", engine=engine).quantities["weights"].expected
        for engine in ("ollama", "llama.cpp")
    }
    assert sizes["ollama"] == pytest.approx(13_793_441_244, rel=0.002)
    assert sizes["llama.cpp"] == pytest.approx(12.1e9, rel=0.01)


def test_ollama_loads_a_vision_models_projector() -> None:
    seeing, blind = (
        serve("google/gemma-3-4b-it", "rtx-4060", engine=engine).phases[-1].components.find("projector")
        for engine in ("ollama", "llama.cpp")
    )
    assert blind is None
    assert seeing is not None
    assert seeing.bytes > 800 * MIB


def test_embeddings_of_each_layer_stay_on_the_host() -> None:
    """src/llama-arch.cpp: per_layer_token_embd is a tensor of the input."""
    result = serve("google/gemma-4-E4B-it", "rtx-4060", gguf_quant="Q4_K_M")
    per_layer = 262_144 * 42 * 256 * 144 // 256
    assert result.quantities["weights_host"].expected >= per_layer
    assert result.quantities["weights_gpu"].expected < result.quantities["weights"].expected - per_layer + 64 * MIB


def test_of_shared_memory_the_hosts_part_has_to_fit_too() -> None:
    """A file larger than all of the memory runs nowhere in it; one that Metal's share alone is too small for does."""
    small, large = serve(QWEN_32B, "m1 8gb"), serve(QWEN_32B, "m4 24gb")
    assert small.verdict is not None
    assert not small.verdict.fits
    assert large.verdict is not None
    assert large.verdict.fits


def test_a_split_that_was_dealt_out_is_the_draft_models_too() -> None:
    """tools/server: the draft's parameters are copied from the model's after --fit has written its split into them."""
    table = {"model": "Qwen/Qwen3-32B", "task": "serve", "gpus": ["b200", "a100-sxm-80gb", "rtx-3060-12gb"]}
    draft = {"model": "qwen2.5-0.5b", "gguf_quant": "Q8_0"}
    serving = {"engine": "ollama", "n_parallel": 4, "n_cpu_moe": 5, "speculative": draft, "flash_attn": False}
    found = estimate({**table, "serve": serving})
    again = estimate(found.scenario)
    assert found.scenario["serve"]["tensor_split"]
    assert again.ranks == found.ranks
    assert again.quantities == found.quantities


def test_where_nothing_fits_beside_the_margin_the_plan_stays_as_it_was() -> None:
    """--fit that finds nothing changes nothing: two cards of its whole margin still work on several batches at once."""
    table = {"model": "HuggingFaceTB/SmolLM2-135M", "task": "serve", "gpu": "l40s", "num_gpus": 2,
             "gpu_total_bytes": GIB, "reserve_bytes": 0}  # fmt: skip
    found = estimate({**table, "serve": {"engine": "ollama", "n_ctx": 256}})
    assert estimate(found.scenario).quantities == found.quantities
