"""Names that people ask for, without a network: weights by the published counts, or one line that says what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramwise import estimate
from vramwise.sources import known_names, resolve

# Parameters as published: exact where a table counts them, else as rounded as a name or a model card says them.
EXACT = {
    "LiquidAI/LFM2-350M": 354_483_968,
    "LiquidAI/LFM2-700M": 742_489_344,
    "LiquidAI/LFM2.5-1.2B-Instruct": 1_170_340_608,
    "LiquidAI/LFM2-8B-A1B": 8_339_929_856,
    "OpenGVLab/InternVL3-1B": 938_193_024,
    "OpenGVLab/InternVL3-14B-hf": 15_117_256_704,
    "OpenGVLab/InternVL3_5-8B": 8_528_318_464,
    "OpenGVLab/InternVL3_5-4B-Instruct": 4_732_489_216,
    "inclusionAI/Ling-mini-2.0": 16_255_638_528,
    "inclusionAI/Ring-flash-2.0": 102_889_697_280,
    "HuggingFaceTB/SmolVLM2-256M-Video-Instruct": 256_484_928,
    "nvidia/Cosmos-Reason2-8B": 8_767_123_696,
    "nvidia/Nemotron-H-4B-Instruct-128K": 4_489_223_040,
    "nvidia/Nemotron-H-8B-Base-8K": 8_100_852_736,
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 8_888_227_328,
    "tiiuae/Falcon-H1-0.5B-Instruct": 521_411_104,
}
ROUNDED = {
    "allenai/Olmo-3-7B-Think": 7.3e9,
    "allenai/Olmo-3-32B-Think": 32.2e9,
    "answerdotai/ModernBERT-base": 149e6,
    "answerdotai/ModernBERT-large": 395e6,
    "google-t5/t5-11b": 11.3e9,
    "google/gemma-3n-E4B-it": 7.85e9,
    "google/gemma-3n-E2B-it": 5.44e9,
    "inclusionAI/Ling-1T": 1e12,
    "mistralai/Codestral-22B-v0.1": 22.2e9,
    "mistralai/Magistral-Small-2506": 23.6e9,
    "mistralai/Magistral-Small-2509": 24e9,
    "mistralai/Ministral-3-3B-Base-2512": 3.85e9,
    "mistralai/Ministral-3-8B-Reasoning-2512": 8.9e9,
    "mistralai/Ministral-3-14B-Reasoning-2512": 14e9,
    "nvidia/NVIDIA-Nemotron-Nano-12B-v2": 12.3e9,
    "openai/gpt-oss-safeguard-20b": 20.9e9,
    "openai/gpt-oss-safeguard-120b": 116.8e9,
    "openai/whisper-base": 74e6,
    "openai/whisper-large-v2": 1550e6,
    "openai/whisper-large-v3-turbo": 809e6,
    "openai/whisper-medium": 769e6,
    "openai/whisper-small": 244e6,
    "Qwen/Qwen3-Reranker-4B": 4.02e9,
    "swiss-ai/Apertus-8B-2509": 8.05e9,
    "zai-org/GLM-4.6": 355e9,
    "zai-org/GLM-4.7": 355e9,
}


@pytest.mark.parametrize(("name", "published"), EXACT.items())
def test_parameters_are_the_published_ones(name: str, published: int) -> None:
    assert estimate(name, task="load", gpu="h100").quantities["params"].expected == published


@pytest.mark.parametrize(("name", "published"), ROUNDED.items())
def test_parameters_are_near_the_published_size(name: str, published: float) -> None:
    assert estimate(name, task="load", gpu="h100").quantities["params"].expected == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(
    ("name", "file_gib"),
    [("mistralai/Ministral-3-8B-Instruct-2512", 9.70), ("mistralai/Ministral-3-14B-Instruct-2512", 14.65)],
)
def test_weights_are_as_large_as_their_fp8_file(name: str, file_gib: float) -> None:
    """Sizes of files: kaito's model_catalog.yaml."""
    weights = estimate(name, task="load", gpu="h100").quantities["weights"].expected
    assert weights == pytest.approx(file_gib * 2**30, rel=0.002)


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("nvidia/Qwen3-8B-NVFP4", 4_717_851_648),
        ("nvidia/Qwen3-14B-NVFP4", 8_162_278_400),
        ("nvidia/Qwen3-32B-NVFP4", 17_159_312_384),
        ("nvidia/Qwen3-30B-A3B-NVFP4", 15_583_623_168),
    ],
)
def test_four_bits_lie_where_the_published_numbers_say(name: str, stored: int) -> None:
    """What the hub counts: packed pairs as one number each, everything else as it is."""
    found = estimate(name, task="load", gpu="h100").quantities
    parameters, weights = found["params"].expected, found["weights"].expected
    quantized = (2 * parameters - weights) / (2 - 0.5 - 1 / 16)
    assert parameters - quantized / 2 == pytest.approx(stored, rel=0.001)


@pytest.mark.parametrize("name", ["nvidia/DeepSeek-V3.1-NVFP4", "nvidia/Qwen3-235B-A22B-NVFP4", "nvidia/GLM-5-NVFP4"])
def test_nvfp4_is_four_bits_where_only_the_file_beside_the_config_says_so(name: str) -> None:
    found = estimate(name, task="load", gpu="h100").quantities
    assert 0.5625 < found["weights"].expected / found["params"].expected < 0.65


@pytest.mark.parametrize(
    ("name", "model", "file_type"),
    [
        ("bartowski/Qwen2.5-32B-Instruct-GGUF", "Qwen/Qwen2.5-32B-Instruct", None),
        ("unsloth/Qwen3-8B-GGUF:Q5_K_M", "Qwen/Qwen3-8B", "Q5_K_M"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "Qwen/Qwen3-8B", "Q4_K_M"),
        ("unsloth/Qwen3-8B-GGUF:Qwen3-8B-Q6_K.gguf", "Qwen/Qwen3-8B", "Q6_K"),
        ("Qwen3-8B-GGUF:Q8_0", "Qwen/Qwen3-8B", "Q8_0"),
        ("unsloth/Llama-3.3-70B-Instruct-GGUF", "meta-llama/Llama-3.3-70B-Instruct", None),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "google/gemma-3-27b-it", "Q4_0"),
        ("bartowski/google_gemma-3-4b-it-GGUF", "google/gemma-3-4b-it", None),
        ("qwen3:30b-a3b-q4_K_M", "Qwen/Qwen3-30B-A3B", "Q4_K_M"),
        ("qwen3-8b:Q4_K_M", "Qwen/Qwen3-8B", "Q4_K_M"),
        ("qwen3:4b-instruct-2507-q8_0", "Qwen/Qwen3-4B-Instruct-2507", "Q8_0"),
        ("llama3.1:8b-instruct-q8_0", "meta-llama/Llama-3.1-8B-Instruct", "Q8_0"),
        ("gemma3:12b-it-qat", "google/gemma-3-12b-it", "Q4_0"),
        ("deepseek-r1:8b-0528-qwen3-q4_K_M", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Q4_K_M"),
        ("phi4:14b", "microsoft/phi-4", None),
        ("qwen3:8b-q4", "Qwen/Qwen3-8B", "Q4_K_M"),
        ("llama 3.1 8b gguf", "meta-llama/Llama-3.1-8B", None),
        ("Llama 3 70B Q4", "meta-llama/Llama-3-70B", "Q4_K_M"),
        ("qwen3 8b gguf q5", "Qwen/Qwen3-8B", "Q5_K_M"),
    ],
)
def test_a_name_of_files_is_its_model_with_their_type(
    name: str, model: str, file_type: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = resolve(name)
    assert (found.id, found.gguf_quant) == (model, file_type)


@pytest.mark.parametrize(
    ("mix", "nearest"),
    [("UD-Q4_K_XL", "Q4_K_M"), ("UD-Q2_K_XL", "Q2_K"), ("UD-IQ1_S", "IQ1_S"), ("UD-Q8_K_XL", "Q8_0")],
)
def test_a_mix_of_its_maker_is_the_nearest_type_and_says_so(
    mix: str, nearest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """llama.cpp has no type of that name (`gguf_quant` refuses it)."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = {"model": f"unsloth/Qwen3-8B-GGUF:{mix}", "task": "serve", "gpu": "h100"}
    found = estimate(asked)
    assert found.scenario["serve"]["engine"] == "llama.cpp"
    assert any(f"{mix} is a mix of its maker's own" in note and f"taken as {nearest}" in note for note in found.notes)
    plain = {**asked, "model": "Qwen/Qwen3-8B", "serve": {"engine": "llama.cpp", "gguf_quant": nearest}}
    assert found.quantities["weights"] == estimate(plain).quantities["weights"]


@pytest.mark.parametrize(
    ("name", "engine"),
    [("unsloth/Qwen3-8B-GGUF", "llama.cpp"), ("qwen3:8b-q8_0", "ollama"), ("mlx-community/Qwen3-8B-4bit", "mlx"),
     ("qwen3:8b", "vllm"), ("Qwen/Qwen3-8B", "vllm")],
)  # fmt: skip
def test_the_engine_is_the_one_whose_files_are_named(name: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert estimate(name, task="serve").scenario["serve"]["engine"] == engine


def test_an_engine_that_is_named_takes_the_files_as_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = estimate("unsloth/Qwen3-8B-GGUF:Q4_K_M", task="serve", engine="vllm")
    assert (found.scenario["serve"]["quantization"], found.scenario["serve"]["gguf_quant"]) == ("gguf", "Q4_K_M")
    trained = estimate("unsloth/Qwen3-8B-GGUF:Q4_K_M", task="train")
    assert any("GGUF files are not what this task takes" in note for note in trained.notes)


def test_what_it_says_to_ask_is_answered() -> None:
    serve = {"engine": "llama.cpp", "gguf_quant": "Q4_0"}
    scenario = {"model": "google/gemma-3-27b-it", "task": "serve", "gpu": "h100", "serve": serve}
    assert estimate(scenario).quantities["weights"].expected < 18e9


def test_a_pipeline_in_the_layout_of_its_own_code_is_the_converted_one() -> None:
    """Diffusers' convert_wan_to_diffusers.py writes Wan2.2-T2V-A14B-Diffusers from Wan2.2-T2V-A14B."""
    assert resolve("Wan-AI/Wan2.2-T2V-A14B").config == resolve("Wan-AI/Wan2.2-T2V-A14B-Diffusers").config


def test_a_format_that_only_the_name_says_is_not_taken_for_16_bits_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "nvidia/Qwen3-8B-NVFP4"
    assert "counted in 16 bits" not in (resolve(name).note or "")
    found = known_names.entry(name)
    silent = {key: value for key, value in found.hyperparameters.items() if key != "quantization_config"}
    monkeypatch.setattr(known_names, "entry", lambda _: replace(found, hyperparameters=silent))
    note = known_names._from_catalog(name, name).note or ""
    assert note.startswith("the name says NVFP4, but")
    assert "counted in 16 bits" in note
