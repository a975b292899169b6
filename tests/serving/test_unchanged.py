"""A setting that the model or the machine leaves nothing to change says so, and only then."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise import estimate
from vramwise.estimation import model_of
from vramwise.scenario import Scenario
from vramwise.scenario.names import GGUF_QUANTS
from vramwise.serving.common.gguf.quantizer import TYPES_BY_IMATRIX, typed_tensors

DENSE, EXPERTS, WINDOWS = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-30B-A3B", "google/gemma-3-4b-it"
_PREFIXES = "prefixes stay in the blocks of the KV cache, which has its room either way"
STATES, IMAGES = "nvidia/Nemotron-H-56B-Base-8K", "Qwen/Qwen2.5-VL-7B-Instruct"


def said(model: str, engine: str, key: str, value: Any, num_gpus: int = 1, **more: Any) -> list[str]:
    serve = {"engine": engine, key: value, **{name: other for name, other in more.items() if other is not None}}
    notes = estimate(model, task="serve", gpu="h100-sxm-80gb", num_gpus=num_gpus, serve=serve).notes
    return [note.removeprefix(f"{key} changed nothing here: ") for note in notes if note.startswith(f"{key} changed")]


@pytest.mark.parametrize(
    ("engine", "key", "value", "why", "model"),
    [
        ("llama.cpp", "n_cpu_moe", 3, "the model has no experts", EXPERTS),
        ("llama.cpp", "cpu_moe", True, "the model has no experts", EXPERTS),
        ("sglang", "expert_parallel", True, "the model has no experts", EXPERTS),
        ("llama.cpp", "swa_full", True, "every layer's cache keeps all tokens", WINDOWS),
        ("vllm", "disable_hybrid_kv_cache_manager", True, "every layer's cache keeps all tokens", WINDOWS),
        ("sglang", "swa_full_tokens_ratio", 0.5, "every layer's cache keeps all tokens", WINDOWS),
        ("vllm", "mamba_ssm_cache_dtype", "fp32", "no layer of the model keeps a recurrent state", STATES),
        ("vllm", "limit_mm_per_prompt", {"image": 0}, "the model reads text alone", IMAGES),
        ("vllm", "language_model_only", True, "the model reads text alone", IMAGES),
        ("vllm", "skip_mm_profiling", True, "the model reads text alone", IMAGES),
        ("vllm", "quantization_group_size", 64, "the weights are not quantized", "Qwen/Qwen2.5-7B-Instruct-AWQ"),
        ("vllm", "enable_prefix_caching", False, _PREFIXES, STATES),
        ("sglang", "enable_prefix_caching", False, _PREFIXES, STATES),
        ("sglang", "enable_prefix_caching", False, _PREFIXES, "deepseek-ai/DeepSeek-V4-Flash"),
    ],
)
def test_a_setting_that_a_model_leaves_nothing_to_change(
    engine: str, key: str, value: Any, why: str, model: str
) -> None:
    assert said(DENSE, engine, key, value) == [why]
    assert said(model, engine, key, value) == []


def test_what_is_shared_out_over_one_gpu() -> None:
    for key, value in (("split_mode", "row"), ("tensor_split", [1]), ("main_gpu", 0)):
        assert said(DENSE, "llama.cpp", key, value) == ["there is one GPU at most"]
    assert said(DENSE, "llama.cpp", "split_mode", "row", num_gpus=2) == []


@pytest.mark.parametrize("file_type", [name for name in GGUF_QUANTS if name != "custom"])
def test_what_an_importance_matrix_leaves_nothing_to_change(file_type: str) -> None:
    """Of a model with groups of heads and of one without: the quantizer looks at both."""
    types = []
    for name in (DENSE, "gpt2"):
        model = model_of(Scenario.from_dict({"model": name, "task": "load"}))[1]
        types.append([typed_tensors(model, file_type, matrix) for matrix in (False, True)])
    assert any(without != with_one for without, with_one in types) == (file_type in TYPES_BY_IMATRIX)
    why = [] if file_type in TYPES_BY_IMATRIX else ["the types of the file's tensors are the same with and without one"]
    assert said(DENSE, "llama.cpp", "imatrix", True, gguf_quant=file_type) == why


@pytest.mark.parametrize(
    ("version", "engine"), [(None, "newer"), ("0.33.0", "newer"), ("0.11.1", "newer"), ("0.7.3", "older")]
)
def test_versions_of_vllm_that_have_one_engine(version: str | None, engine: str) -> None:
    why = f"vLLM 0.8 to 0.10 have both engines, this answer is of the {engine}"
    assert said(DENSE, "vllm", "use_v1", False, engine_version=version) == [why]
    assert said(DENSE, "vllm", "use_v1", False, engine_version="0.9.0") == []


def test_a_plan_that_fits_as_it_is_is_not_changed_by_fit() -> None:
    for value in (True, False):
        assert said(DENSE, "llama.cpp", "fit", value, n_ctx=4096) == ["everything has room without it"]
        old = {"n_ctx": 4096, "engine_version": "b6000"}
        assert said(DENSE, "llama.cpp", "fit", value, **old) == ["this build does not fit its plan to the card"]
    assert said("Qwen/Qwen2.5-72B-Instruct", "llama.cpp", "fit", True, gguf_quant="F16") == []


def test_drafts_from_n_grams_have_no_model_and_room_for_their_logits_since_few_are_kept() -> None:
    """common/speculative.cpp common_speculative_n_max: 48 tokens, 3 of a draft model where nobody says how many."""
    drafts, old = (
        {"method": "ngram-simple"},
        {"n_ctx": 4096, "n_parallel": 1, "n_ubatch": 64, "engine_version": "b8000"},
    )
    why = "drafts from n-grams have no model, and all logits have room either way"
    assert said(DENSE, "llama.cpp", "speculative", drafts, **old) == [why]
    assert said(DENSE, "llama.cpp", "speculative", drafts, **{**old, "engine_version": "b9500"}) == []

    def needed(told: dict[str, Any] | None) -> float:
        serve = {"engine": "llama.cpp", **old, "engine_version": "b9500", **({"speculative": told} if told else {})}
        return estimate(DENSE, task="serve", gpu="h100-sxm-80gb", serve=serve).quantities["compute_buffer"].expected

    assert needed(drafts) == needed({**drafts, "num_tokens": 48}) > needed(None)
    assert needed({"method": "ngram-mod"}) > needed(drafts)


def test_attention_of_a_generation_that_sdpa_runs_as_flash() -> None:
    def of(model: str, attention: str) -> list[str]:
        found = estimate(model, task="generate", gpu="h100-sxm-80gb", generate={"attention": attention})
        return [note for note in found.notes if "changed nothing" in note]

    why = "attention flash changed nothing here: SDPA runs a flash kernel of its own, which keeps the same"
    assert of(DENSE, "flash") == [why]
    assert of(DENSE, "eager") == of(DENSE, "sdpa") == []


def test_a_picture_that_is_one_tile() -> None:
    def of(size: str) -> list[str]:
        generate = {"vae_tiling": True, "image_size": size}
        found = estimate("stabilityai/stable-diffusion-xl-base-1.0", task="generate", generate=generate)
        return [note for note in found.notes if "changed nothing" in note]

    assert of("1024x1024") == ["vae_tiling changed nothing here: what is made is no larger than one tile"]
    assert of("2048x1024") == []
