"""Every key of the `serve` table, with every engine: it changes the answer, is said to be left out, or is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vramwise.engines import engine_named, engines
from vramwise.errors import ScenarioError
from vramwise.estimation import estimate
from vramwise.scenario import Scenario, checks
from vramwise.scenario.definition import KINDS, ServeSettings, engines_of
from vramwise.scenario.inference import counts
from vramwise.scenario.names import ENGINES
from vramwise.units import GIB

LLAMA_CPP_ENGINES = tuple(engine.name for engine in engines() if engine.reads_gguf)
MOE, GEMMA, LATENT, HYBRID = (
    "Qwen/Qwen3-30B-A3B",
    "google/gemma-3-27b-it",
    "deepseek-ai/DeepSeek-V2-Lite",
    "Qwen/Qwen3.5-9B",
)
DENSE, NVFP4_MOE = "Qwen/Qwen3-8B", "RedHatAI/Qwen3.6-35B-A3B-NVFP4"
IK = {"variant": "ik_llama.cpp"}
GGUF = {"quantization": "gguf", "gguf_quant": "Q8_0"}
TWO: dict[str, Any] = {"num_gpus": 2}

# key -> value, what else the scenario says (`gpu` and `num_gpus` at its top), model
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "engine_version": ("0.4.6", {}, MOE),
    "dtype": ("fp32", {}, MOE),
    "quantization": ("gptq", {}, MOE),
    "quantization_group_size": (64, {"quantization": "gptq"}, MOE),
    "kv_cache_dtype": ("fp8_e4m3", {}, MOE),
    "mamba_ssm_cache_dtype": ("fp16", {}, HYBRID),
    "max_model_len": (2048, {}, MOE),
    "gpu_memory_utilization": (0.6, {}, MOE),
    "max_num_seqs": (3, {}, MOE),
    "max_num_batched_tokens": (777, {}, MOE),
    "enforce_eager": (True, {}, MOE),
    "cudagraph_capture_sizes": ([1, 2], {}, MOE),
    "block_size": (64, {}, MOE),
    "sleep_level": (1, {}, MOE),
    "cpu_offload_gb": (4, {}, MOE),
    "kv_cache_memory_bytes": (8 * GIB, {}, MOE),
    "limit_mm_per_prompt": ({"image": 0, "video": 0}, {}, GEMMA),
    "language_model_only": (True, {}, GEMMA),
    "skip_mm_profiling": (True, {}, GEMMA),
    "pooling": (True, {}, MOE),
    "max_loras": (4, {}, MOE),
    "max_lora_rank": (64, {"max_loras": 2}, MOE),
    "lora_targets": (["q_proj"], {"max_loras": 2, "max_lora_rank": 64}, MOE),
    "speculative": ({"method": "draft_model", "num_tokens": 4, "model": "Qwen/Qwen3-0.6B"}, {}, MOE),
    "tensor_parallel_size": (2, {}, MOE),
    "pipeline_parallel_size": (2, {}, MOE),
    "pipeline_layer_partition": ([30, 18], {**TWO, "pipeline_parallel_size": 2}, MOE),
    "data_parallel_size": (2, {}, MOE),
    "expert_parallel": (True, {"data_parallel_size": 3}, MOE),
    "decode_context_parallel_size": (2, {"tensor_parallel_size": 8}, MOE),
    "enable_prefix_caching": (False, {"max_num_seqs": 8}, HYBRID),
    "use_v1": (False, {"engine_version": "0.9.0"}, MOE),
    "flashinfer_sampler": (True, {"engine_version": "0.9.2"}, MOE),
    "use_v2_runner": (False, {"engine_version": "0.31.0"}, MOE),
    "offline_inference": (True, {}, MOE),
    "first_start": (True, {"engine_version": "0.24.0"}, DENSE),
    "moe_backend": ("cutlass", {"gpu": "rtx-5090"}, NVFP4_MOE),
    "disable_hybrid_kv_cache_manager": (True, {}, GEMMA),
    "mem_fraction_static": (0.6, {}, MOE),
    "chunked_prefill_size": (1024, {}, MOE),
    "cuda_graph_max_bs": (4, {}, MOE),
    "max_total_tokens": (3000, {}, MOE),
    "swa_full_tokens_ratio": (0.4, {"engine_version": "0.5.4"}, GEMMA),
    "gguf_quant": ("Q4_K_M", GGUF, MOE),
    "n_ctx": (3000, {}, MOE),
    "n_batch": (64, {}, MOE),
    "n_ubatch": (64, {}, MOE),
    "flash_attn": (False, {}, MOE),
    "cache_type_k": ("q8_0", {}, MOE),
    "cache_type_v": ("q8_0", {}, MOE),
    "n_gpu_layers": (3, {}, MOE),
    "tensor_split": ([3, 1], TWO, MOE),
    "split_mode": ("none", TWO, MOE),
    "main_gpu": (1, {**TWO, "split_mode": "none"}, MOE),
    "ggml_backend": ("vulkan", {"n_parallel": 1, "logits_all": False, "n_ubatch": 2048}, GEMMA),
    "fit": (False, {"gpu": "rtx-4090"}, GEMMA),
    "no_kv_offload": (True, {}, MOE),
    "mmproj": ("auto", {}, GEMMA),
    "mmproj_offload": (False, {"mmproj": "auto"}, GEMMA),
    "n_parallel": (3, {}, MOE),
    "logits_all": (True, {"n_ubatch": 2048, "n_batch": 2048}, MOE),
    "kv_unified": (True, {"n_parallel": 4, "n_ctx": 8192}, GEMMA),
    "n_cpu_moe": (2, {}, MOE),
    "cpu_moe": (True, {}, MOE),
    "override_tensor": (["exps=CPU"], {}, MOE),
    "swa_full": (True, {"n_ctx": 32768}, GEMMA),
    "imatrix": (True, {**GGUF, "gguf_quant": "Q4_0"}, MOE),
    "variant": ("ik_llama.cpp", {}, MOE),
    "kv_bits": (4, {}, MOE),
    "kv_group_size": (32, {"kv_bits": 4}, MOE),
    "quantized_kv_start": (10**6, {"kv_bits": 4}, MOE),
    "max_kv_size": (512, {}, MOE),
    "prefill_step_size": (512, {}, MOE),
    "mla_attn": (1, IK, LATENT),
    "attn_max_b": (128, {**IK, "n_ctx": 131072, "flash_attn": True}, LATENT),
    "run_time_repack": (True, {**IK, "cpu_moe": True, "fused_moe": 0, "n_ubatch": 128, "n_batch": 128}, MOE),
    "fused_moe": (1, {**IK, "n_cpu_moe": 20, "n_ubatch": 2048, "n_batch": 2048}, MOE),
}


def test_every_key_has_a_case() -> None:
    assert set(CASES) == set(KINDS[ServeSettings]) - {"engine"}


def scenario(engine: str, model: str, context: dict[str, Any], **table: Any) -> dict[str, Any]:
    top = {key: value for key, value in {"gpu": "h200", **context}.items() if key in ("gpu", "num_gpus")}
    settings = {key: value for key, value in context.items() if key not in top and engine in engines_of(key)}
    if engine in LLAMA_CPP_ENGINES:
        settings = {"gguf_quant": "Q4_K_S", **settings}
        settings.pop("quantization", None)
    if "gguf_quant" in table and engine not in LLAMA_CPP_ENGINES:
        settings["quantization"] = "gguf"
    return {"model": model, "task": "serve", **top, "serve": {"engine": engine, **settings, **table}}


def told(asked: dict[str, Any]) -> tuple[Any, ...]:
    result = estimate(asked)
    return (
        dict(result.quantities), [(rank.name, rank.bytes) for rank in result.ranks],
        [(phase.name, phase.bytes) for phase in result.phases], result.scenario["num_gpus"],
    )  # fmt: skip


def leaves_out(key: str, engine: str) -> bool:
    return engine in engines_of(key) and not counts(engine, key)


PAIRS = [(key, engine) for key in CASES for engine in ENGINES]


@pytest.mark.parametrize(("key", "engine"), [pair for pair in PAIRS if pair[1] not in engines_of(pair[0])])
def test_a_key_of_another_engine_is_refused(key: str, engine: str) -> None:
    value, _, model = CASES[key]
    with pytest.raises(ScenarioError, match=rf"belongs to the engines? .*; the engine is {engine}") as problem:
        Scenario.from_dict({"model": model, "task": "serve", "serve": {"engine": engine, key: value}})
    assert problem.value.path == f"serve.{key}"


@pytest.mark.parametrize(("key", "engine"), [pair for pair in PAIRS if leaves_out(*pair)])
def test_what_an_answer_leaves_out_is_said(key: str, engine: str) -> None:
    value, context, model = CASES[key]
    read = Scenario.from_dict(scenario(engine, model, context, **{key: value}))
    assert f"{key} of {engine} is accepted, and left out of the answer" in read.notes


VALUES_OF_ENGINES = {("engine_version", "llama.cpp"): "b6200", ("engine_version", "vllm"): "0.8.5"}

# what an engine has, and what moves no byte of it: the reason
UNMOVED = {("main_gpu", engine): "the cards of a scenario are alike" for engine in LLAMA_CPP_ENGINES} | {
    ("mmproj", "ollama"): "its library brings the projector by itself",
    ("engine_version", "mlx"): "the rules of one version are known",
}


@pytest.mark.parametrize(
    ("key", "engine"),
    [pair for pair in PAIRS if counts(pair[1], pair[0]) and pair not in UNMOVED],
)  # fmt: skip
def test_a_key_of_the_engine_changes_its_answer(key: str, engine: str) -> None:
    value, context, model = CASES[key]
    value = VALUES_OF_ENGINES.get((key, engine), value)
    given = scenario(engine, model, context, **{key: value})
    assert told(given) != told(scenario(engine, model, context))


def test_the_way_out_names_the_engine_s_own_key() -> None:
    for engine, key, value, own in (
        ("sglang", "gpu_memory_utilization", 0.5, "mem_fraction_static"),
        ("vllm", "n_ctx", 4096, "max_model_len"),
        ("llama.cpp", "kv_cache_dtype", "fp8_e4m3", "cache_type_k and cache_type_v"),
    ):
        with pytest.raises(ScenarioError, match=f"set {own}"):
            Scenario.from_dict({"model": MOE, "task": "serve", "serve": {"engine": engine, key: value}})


@pytest.mark.parametrize("key", ["mla_attn", "attn_max_b", "fused_moe"])
def test_keys_of_ik_llama_cpp_need_the_variant(key: str) -> None:
    with pytest.raises(ScenarioError, match=r"belongs to the variant ik_llama.cpp; the variant is llama.cpp"):
        Scenario.from_dict({"model": MOE, "task": "serve", "serve": {"engine": "llama.cpp", key: 1}})


def test_a_gguf_type_needs_gguf_weights() -> None:
    with pytest.raises(ScenarioError, match="needs quantization gguf"):
        Scenario.from_dict({"model": MOE, "task": "serve", "serve": {"engine": "vllm", "gguf_quant": "Q4_K_M"}})
    read = Scenario.from_dict({"model": MOE, "task": "serve", "serve": {"engine": "llama.cpp", "quantization": "gguf"}})
    assert read.notes == ()


def test_an_engine_like_another_may_lack_settings_or_leave_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    record = replace(engine_named("tgi"), lacks=("block_size",), uncounted=("max_num_seqs",))
    monkeypatch.setattr(checks, "engine_named", lambda name: record)

    def read(**serve: Any) -> Scenario:
        return Scenario.from_dict({"model": MOE, "task": "serve", "serve": {"engine": "tgi", **serve}})

    assert read(max_num_batched_tokens=512).notes == ()
    assert read(max_num_seqs=4).notes == ("max_num_seqs of tgi is accepted, and left out of the answer",)
    with pytest.raises(ScenarioError, match=r"belongs to the engines .*; the engine is tgi"):
        read(block_size=16)
