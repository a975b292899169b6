"""vLLM's configuration refuses by version: each case stands in the source of the versions that it names."""

from __future__ import annotations

from typing import Any

import pytest

from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.result import Result

LLAMA, GEMMA, GPT_OSS = "meta-llama/Llama-3.1-8B-Instruct", "google/gemma-3-12b-it", "openai/gpt-oss-20b"
BLOCKS, LATENT, PICTURES = "Qwen/Qwen3-32B-FP8", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.2-11B-Vision-Instruct"
T4, KIMI = "t4", "moonshotai/Kimi-K2.5"
SMALL = {
    "hidden_size": 640, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
}  # fmt: skip
MTP = {"method": "mtp", "num_tokens": 1}
NARROW = {**SMALL, "model_type": "llama", "head_dim": 80}
TWO_LAYERS = {**SMALL, "model_type": "qwen3_next", "num_nextn_predict_layers": 2}
FEW_EXPERTS = {
    **SMALL, "model_type": "qwen3_moe", "head_dim": 64, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 1024,
}  # fmt: skip


def serve(model: Any, gpu: str = "h200", **settings: Any) -> Result:
    return estimate({"model": model, "task": "serve", "gpu": gpu, "serve": {"engine": "vllm", **settings}})


# model, settings, versions that refuse, versions that do not, key, what is said
CASES: list[tuple[str, dict[str, Any], list[str | None], list[str | None], str, str]] = [
    (GEMMA, {"dtype": "fp16"}, ["0.9.2", "0.33.0", None], ["0.8.5"], "dtype", "set dtype to bf16"),
    (LLAMA, {"expert_parallel": True}, ["0.8.5", None], ["0.7.3"], "expert_parallel", "no experts"),
    (LLAMA, {"block_size": 24}, ["0.8.5", "0.11.0", "0.20.0", None], [], "block_size", "refuses it"),
    (LLAMA, {"block_size": 256}, ["0.10.2", "0.11.0"], ["0.11.2", "0.19.0", None], "block_size", "expected one of"),
    (LLAMA, {"block_size": 48}, ["0.17.1"], ["0.18.1", None], "block_size", "expected one of"),
    (LLAMA, {"block_size": 8}, ["0.8.5", "0.20.0", None], ["0.7.3"], "block_size", "set it to 16"),
    (LLAMA, {"max_loras": 2, "max_lora_rank": 48}, ["0.7.3", None], [], "max_lora_rank", "set it to 64"),
    (LLAMA, {"max_loras": 2, "max_lora_rank": 512}, ["0.7.3"], ["0.8.5", None], "max_lora_rank", "256 is the largest"),
    (LLAMA, {"max_loras": 2, "max_lora_rank": 1}, ["0.11.0"], ["0.11.2", None], "max_lora_rank", "set it to 8"),
    (LLAMA, {"kv_cache_dtype": "bf16"}, ["0.10.2"], ["0.11.0", None], "kv_cache_dtype", "came with 0.11"),
    (LLAMA, {"kv_cache_dtype": "nvfp4"}, ["0.19.0"], ["0.20.2", None], "kv_cache_dtype", "came with 0.20"),
    (LLAMA, {"kv_cache_dtype": "fp16"}, ["0.17.1", "0.33.0", None], ["0.19.0"], "kv_cache_dtype", "set it to auto"),
    (LATENT, {"kv_cache_dtype": "nvfp4"}, ["0.33.0", None], [], "kv_cache_dtype", "latent attention"),
    (LATENT, {"kv_cache_dtype": "turboquant_k8v4"}, ["0.33.0", None], [], "kv_cache_dtype", "latent attention"),
    (LLAMA, {"kv_cache_dtype": "turboquant_k8v4"}, ["0.19.1"], ["0.20.2", None], "kv_cache_dtype", "came with 0.20"),
    (LLAMA, {"kv_cache_dtype": "int4_per_token_head"}, ["0.24.0"], ["0.25.0"], "kv_cache_dtype", "came with 0.25"),
    (BLOCKS, {"kv_cache_dtype": "fp8_e5m2"}, ["0.8.5", None], [], "kv_cache_dtype", "set it to fp8_e4m3"),
    (LLAMA, {"limit_mm_per_prompt": {"image": 1}}, ["0.9.2"], ["0.11.0", None], "limit_mm_per_prompt", "text alone"),
    (LLAMA, {"quantization": "bitsandbytes-nf4"}, ["0.28.0"], ["0.27.1", None], "quantization", "was the last with"),
    (
        LLAMA, {"quantization": "gguf", "gguf_quant": "Q4_K_M"}, ["0.24.0"], ["0.23.0", None],
        "quantization", "engine llama.cpp",
    ),
    (PICTURES, {"pipeline_parallel_size": 2}, ["0.8.5"], [], "pipeline_parallel_size", "set tensor_parallel_size"),
    (
        LLAMA, {"tensor_parallel_size": 16, "decode_context_parallel_size": 2}, ["0.10.0"], ["0.10.2", None],
        "decode_context_parallel_size", "came with 0.10.2",
    ),
    (
        LLAMA, {"use_v1": False, "pipeline_parallel_size": 2, "speculative": {"method": "ngram", "num_tokens": 3}},
        ["0.8.5"], [], "speculative", "V0",
    ),
    (GPT_OSS, {"dtype": "fp16"}, ["0.11.0", None], [], "dtype", "set dtype to bf16"),
    (BLOCKS, {"dtype": "fp32"}, ["0.11.0", None], [], "dtype", "set dtype to bf16 or fp16"),
    (LLAMA, {"speculative": MTP}, ["0.11.2", "0.33.0", None], [], "speculative", "llama has no layers"),
    (KIMI, {"speculative": MTP}, ["0.11.2", None], [], "speculative", "config states no"),
    (
        TWO_LAYERS, {"speculative": {"method": "mtp", "num_tokens": 3}}, ["0.11.2", None], [],
        "speculative", "set num_tokens to 2",
    ),
    (
        LLAMA, {"speculative": {"model": "gpt2", "num_tokens": 3}}, ["0.11.0", "0.11.2"], ["0.15.1", "0.20.2", None],
        "speculative", "draft model of its own",
    ),
    (LLAMA, {"use_v1": False}, ["0.11.0"], ["0.10.2", "0.11.1", None], "use_v1", "leave it out"),
    (NARROW, {}, ["0.8.5"], ["0.7.3", "0.11.2", None], "use_v1", "set use_v1 to false"),
    (BLOCKS, {"quantization": "awq"}, ["0.8.5", "0.33.0", None], [], "quantization", "quantized by fp8, not by awq"),
    (GPT_OSS, {"quantization": "fp8"}, ["0.11.0", None], [], "quantization", "quantized by mxfp4, not by fp8"),
    (FEW_EXPERTS, {"tensor_parallel_size": 8}, ["0.8.5", "0.33.0", None], [], "tensor_parallel_size", "the 4 experts"),
    (LLAMA, {"dtype": "fp32", "quantization": "w4a16"}, ["0.8.5"], ["0.11.0", None], "dtype", "do not compute in fp32"),
]  # fmt: skip

REFUSED = [(*case[:2], version, *case[4:]) for case in CASES for version in case[2]]
ACCEPTED = [(*case[:2], version) for case in CASES for version in case[3]]


@pytest.mark.parametrize(("model", "settings", "version", "key", "said"), REFUSED)
def test_what_a_version_refuses(model: str, settings: dict[str, Any], version: str | None, key: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as problem:
        serve(model, **settings, engine_version=version)
    assert problem.value.path == f"serve.{key}"
    assert "\n" not in str(problem.value)
    assert version is None or f"vLLM {version} refuses it" in problem.value.problem


@pytest.mark.parametrize(("model", "settings", "version"), ACCEPTED)
def test_what_a_version_takes(model: str, settings: dict[str, Any], version: str | None) -> None:
    assert serve(model, **settings, engine_version=version).quantities


@pytest.mark.parametrize(
    ("quantization", "version", "refused"),
    [("w4a16", "0.11.2", True), ("w4a16", "0.12.0", False), ("gptq-marlin", "0.13.0", True),
     ("gptq-marlin", "0.14.1", False), ("fp8", "0.13.0", True), ("fp8", "0.14.1", False), ("gptq", "0.8.5", False),
     ("mxfp4", None, True)],
)  # fmt: skip
def test_formats_on_turing(quantization: str, version: str | None, refused: bool) -> None:
    settings = {"quantization": quantization, "engine_version": version, "max_model_len": 2048, "dtype": "fp16"}
    if not refused:
        assert serve(LLAMA, T4, **settings).quantities
        return
    with pytest.raises(ScenarioError, match="compute"):
        serve(LLAMA, T4, **settings)


def test_types_without_fp16_are_served_in_fp32_where_there_is_no_bf16() -> None:
    for version, size in (("0.8.5", "fp16"), ("0.19.0", "fp32"), (None, "fp32")):
        assert serve(GEMMA, T4, engine_version=version).scenario["serve"]["dtype"] == size


def test_ranks_cannot_share_what_bitsandbytes_has_quantized() -> None:
    config = {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 2,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 32000, "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    }  # fmt: skip
    assert serve(config, engine_version="0.19.0").quantities
    with pytest.raises(ScenarioError, match="set pipeline_parallel_size to 2 instead"):
        serve(config, engine_version="0.19.0", tensor_parallel_size=2)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (BLOCKS, {"quantization": "fp8"}),
        (GPT_OSS, {"quantization": "mxfp4"}),
        (LLAMA, {"quantization": "awq"}),
        ("deepseek-ai/DeepSeek-V3", {"speculative": {"method": "mtp", "num_tokens": 3}, "tensor_parallel_size": 8}),
        ("Qwen/Qwen3.5-27B", {"speculative": {"method": "qwen3_next_mtp", "num_tokens": 2}}),
        (LLAMA, {"speculative": {"method": "ngram", "num_tokens": 3}}),
        (NARROW, {"engine_version": "0.8.5", "use_v1": False}),
    ],
)
def test_what_agrees_is_taken(model: Any, settings: dict[str, Any]) -> None:
    assert serve(model, **settings).quantities


def test_v0_takes_small_steps_when_prefill_is_chunked() -> None:
    notes = serve(LLAMA, engine_version="0.7.3", max_model_len=16384, max_num_batched_tokens=4096).notes
    assert any("--enable-chunked-prefill" in note for note in notes)


@pytest.mark.parametrize(
    ("settings", "path", "said"),
    [
        ({"chunked_prefill_size": 1000, "block_size": 64}, "serve.chunked_prefill_size", "set it to 960"),
        ({"kv_cache_dtype": "bf16", "engine_version": "0.4.9"}, "serve.kv_cache_dtype", "came with 0.5"),
        (
            {"expert_parallel": True, "tensor_parallel_size": 6, "engine_version": "0.5.4"},
            "serve.expert_parallel", "set tensor_parallel_size to 4",
        ),
        ({"tensor_parallel_size": 24}, "serve.tensor_parallel_size", "24 ranks are more than the 16 experts"),
    ],
)  # fmt: skip
def test_what_sglang_refuses(settings: dict[str, Any], path: str, said: str) -> None:
    config = {
        "model_type": "qwen3_moe", "hidden_size": 2304, "intermediate_size": 768, "moe_intermediate_size": 768,
        "num_hidden_layers": 2, "num_attention_heads": 24, "num_key_value_heads": 12, "head_dim": 96,
        "vocab_size": 32000, "num_experts": 16, "num_experts_per_tok": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip
    with pytest.raises(ScenarioError, match=said) as problem:
        estimate({"model": config, "task": "serve", "serve": {"engine": "sglang", **settings}})
    assert problem.value.path == path
