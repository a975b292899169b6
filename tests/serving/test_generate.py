"""`generate` against Qwen's published speed tables (transformers 4.46, A100 80 GB, flash attention)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vramwise.estimation import estimate
from vramwise.result import Result

CASES = Path(__file__).parents[2] / "benchmarks" / "cases" / "serving.jsonl"


def rows() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in CASES.read_text().splitlines()]
    return [row for row in lines if row["scenario"]["task"] == "generate" and row["confidence"] == "high"]


@pytest.mark.parametrize("row", rows(), ids=lambda row: str(row["id"]))
def test_peak_is_near_the_measured_one(row: dict[str, Any]) -> None:
    expected = estimate(row["scenario"]).quantities["peak_allocated"].expected
    assert abs(expected / row["measured"]["peak_allocated"] - 1) < 0.023


def small(**generate: object) -> Result:
    return estimate({"model": "Qwen/Qwen2.5-0.5B", "task": "generate", "generate": generate})


def test_layers_with_many_small_steps_are_walked_operation_by_operation() -> None:
    """GPT-2's gelu_new is Python arithmetic: four tensors of the MLP's width at once, and residual, norm, inputs, and
    what attention gave, which the layer's frame names until it returns (a dry run of the class: 34,607,104 bytes)."""
    result = estimate({"model": "gpt2", "task": "generate", "generate": {"prompt_tokens": 512, "dtype": "fp32"}})
    assert result.quantities["activation_peak"].expected == 512 * (4 * 3072 + 5 * 768) * 4


def test_prefill_runs_every_beam() -> None:
    one, four = (small(prompt_tokens=4096, new_tokens=1, num_beams=n) for n in (1, 4))
    assert four.quantities["activation_peak"].expected == 4 * one.quantities["activation_peak"].expected


def test_beams_multiply_the_cache() -> None:
    one = small(prompt_tokens=100, new_tokens=29)
    four = small(prompt_tokens=100, new_tokens=29, num_beams=4)
    per_token = 2 * 2 * 64 * 24 * 2
    assert one.quantities["kv_cache_bytes"].expected == 128 * per_token
    assert four.quantities["kv_cache_bytes"].expected == 4 * 128 * per_token


def test_eager_attention_grows_with_the_square_of_the_prompt() -> None:
    peaks = [
        small(prompt_tokens=n, new_tokens=1, attention="eager").quantities["activation_peak"].expected
        for n in (8192, 16384)
    ]
    assert 3.9 < peaks[1] / peaks[0] < 4.0


def test_versions_before_4_45_make_logits_of_the_whole_prompt() -> None:
    old = small(prompt_tokens=4096, new_tokens=1, engine_version="4.40.0")
    new = small(prompt_tokens=4096, new_tokens=1, engine_version="4.46.0")
    logits = 4096 * 151936 * 6
    assert old.quantities["peak_allocated"].expected - new.quantities["peak_allocated"].expected > logits / 2


def test_settings_that_were_left_open_are_written_back() -> None:
    table = small().scenario["generate"]
    assert table["prompt_tokens"] == 1024
    assert table["new_tokens"] == 256
    assert table["dtype"] == "bf16"
    assert "capacity" not in table


def test_without_a_gpu_nothing_is_said_about_fitting() -> None:
    result = small()
    assert result.capacity is None
    assert not {"oom", "max_batch", "max_seq"} & set(result.quantities)


def test_a_prompt_that_does_not_fit_is_answered_with_one_that_does() -> None:
    scenario = {
        "model": "Qwen/Qwen2.5-7B-Instruct", "task": "generate", "gpu": "rtx-4090",
        "generate": {"prompt_tokens": 30000, "new_tokens": 1000, "batch_size": 8},
    }  # fmt: skip
    result = estimate(scenario)
    assert result.verdict is not None
    assert not result.verdict.fits
    batch = int(result.quantities["max_batch"].expected)
    assert 1 <= batch < 8
    assert f"batch_size {batch} fits" in result.verdict.reasons
    fitting = estimate({**scenario, "generate": {**scenario["generate"], "batch_size": batch}})  # type: ignore[dict-item]
    assert fitting.verdict is not None
    assert fitting.verdict.fits


def cache_of(**settings):
    table = {"prompt_tokens": 1000, "new_tokens": 200, **settings}
    result = estimate({"model": "meta-llama/Llama-3.1-8B", "task": "generate", "generate": table})
    return {phase.name: phase.components.find("KV cache/keys and values").bytes for phase in result.phases[1:]}


def test_a_static_cache_is_as_long_as_the_answer_from_the_start():
    assert cache_of(cache_implementation="static") == {"prefill": 1199 * 131072, "decode": 1199 * 131072}
    assert cache_of() == {"prefill": 1000 * 131072, "decode": 1199 * 131072}


def test_a_quantized_cache_keeps_its_newest_tokens_whole():
    """4 bits and two 16-bit numbers for 64 values; of 199 tokens the 127th finds the most kept whole."""
    elements = 65536
    for settings in ({"cache_implementation": "quantized"}, {"kv_cache_dtype": "int4"}):
        cache = cache_of(**settings)
        assert cache["prefill"] == 1000 * (elements // 2 + elements // 64 * 4)
        assert cache["decode"] == 1000 * (elements // 2 + elements // 64 * 4) + 127 * elements * 2


@pytest.mark.parametrize("kind", ["llama", "gemma3_text"])
def test_static_caches_are_as_large_as_transformers_makes_them(kind):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        kind, hidden_size=64, intermediate_size=128, num_hidden_layers=12, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=128, max_position_embeddings=512,
        **({"sliding_window": 32} if kind == "gemma3_text" else {}),
    )  # fmt: skip
    cache = transformers.StaticCache(config=config, max_cache_len=149)
    cache.early_initialization(3, 2, 16, torch.bfloat16, torch.device("meta"))
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)
    table = {"prompt_tokens": 100, "new_tokens": 50, "batch_size": 3, "cache_implementation": "static", "dtype": "bf16"}
    result = estimate({"model": json.loads(config.to_json_string()), "task": "generate", "generate": table})
    assert result.phases[1].components.find("KV cache/keys and values").bytes == held


def test_a_quantized_cache_is_fullest_before_its_rest_is_packed() -> None:
    """QuantizedLayer packs what it keeps in full at 128 tokens: the token before holds more than those after it."""

    def needed(new_tokens: int) -> int:
        table = {"cache_implementation": "quantized", "prompt_tokens": 1, "new_tokens": new_tokens}
        result = estimate({"model": "llama-2-7b", "task": "generate", "generate": table})
        return int(result.quantities["total_needed"].expected)

    assert needed(127) < needed(128) == needed(129) == needed(140) < needed(256)


def test_layers_that_cannot_be_recorded_are_said_to_be_worked_out_otherwise() -> None:
    notes = estimate({"model": "moonshotai/Kimi-K3", "task": "generate"}).notes
    assert any(note.startswith("what a layer holds while it runs is worked out from the widths") for note in notes)
    assert not any(
        "widths" in note for note in estimate({"model": "meta-llama/Llama-3.1-8B-Instruct", "task": "generate"}).notes
    )


def test_a_prompt_beyond_the_models_positions_is_said():
    """GPT-2 has 1,024 of them, and an index beyond its table stops the run."""

    def notes(prompt):
        table = {"prompt_tokens": prompt, "new_tokens": 24}
        return estimate({"model": "gpt2", "task": "generate", "generate": table}).notes

    said = "prompt_tokens and new_tokens, 1,025 in all, are beyond the model's own 1,024 positions"
    assert said in notes(1001)
    assert not any("beyond" in note for note in notes(1000))


def test_no_low_end_is_below_the_weights():
    result = estimate({"model": "llama-3.1-8b", "task": "generate", "gpu": "rtx-4090"})
    assert result.quantities["weights"].low <= result.quantities["peak_allocated"].low
    assert result.quantities["weights"].low < result.quantities["total_needed"].low
