"""`swift infer`, `deploy` and `rollout` of ms-swift: vLLM, SGLang or transformers' generation with its own defaults.

Read in ms-swift 4.6.0 arguments/infer_args.py, rlhf_trainers/args_mixin.py VllmArguments, infer_engine/vllm_engine.py,
sglang_engine.py and transformers_engine.py: transformers answers unless `--infer_backend` says otherwise (rollout: vLLM
always), one request at a time; vLLM gets 256 requests at once and 0.9 of the card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch import sglang, vllm
from vramwise.interop.launch.command import Launch, Start, launched_by, one_model
from vramwise.interop.launch.launchers import by_environment
from vramwise.interop.launch.options import Options
from vramwise.interop.launch.trainer_settings import attention_of
from vramwise.interop.launch.undescribed import nearest_to

_COMMON = ("model", "model_id_or_path", "adapters", "ckpt_dir", "infer_backend", "torch_dtype", "dtype")
_VLLM = {
    "vllm_gpu_memory_utilization": "--gpu-memory-utilization", "vllm_tensor_parallel_size": "--tensor-parallel-size",
    "vllm_pipeline_parallel_size": "--pipeline-parallel-size", "vllm_max_num_seqs": "--max-num-seqs",
    "vllm_max_model_len": "--max-model-len", "vllm_quantization": "--quantization",
    "vllm_data_parallel_size": "--data-parallel-size", "vllm_mm_processor_cache_gb": "--mm-processor-cache-gb",
}  # fmt: skip
_VLLM_SWITCHES = {"vllm_enforce_eager": "--enforce-eager", "vllm_enable_expert_parallel": "--enable-expert-parallel",
                  "vllm_enable_prefix_caching": "--enable-prefix-caching"}  # fmt: skip
_VLLM_TABLES = {"vllm_limit_mm_per_prompt": "--limit-mm-per-prompt",
                "vllm_speculative_config": "--speculative-config"}  # fmt: skip
_SGLANG = {
    "sglang_tp_size": "--tp-size", "sglang_pp_size": "--pp-size", "sglang_dp_size": "--dp-size",
    "sglang_ep_size": "--ep-size", "sglang_mem_fraction_static": "--mem-fraction-static",
    "sglang_context_length": "--context-length", "sglang_quantization": "--quantization",
    "sglang_kv_cache_dtype": "--kv-cache-dtype", "sglang_speculative_algorithm": "--speculative-algorithm",
    "sglang_speculative_num_steps": "--speculative-num-steps",
    "sglang_speculative_eagle_topk": "--speculative-eagle-topk",
    "sglang_speculative_num_draft_tokens": "--speculative-num-draft-tokens",
}  # fmt: skip
_SGLANG_SWITCHES = {"sglang_disable_cuda_graph": "--disable-cuda-graph",
                    "sglang_enable_dp_attention": "--enable-dp-attention"}  # fmt: skip
_LMDEPLOY = {"lmdeploy_tp": "--tp", "lmdeploy_session_len": "--session-len", "lmdeploy_quant_policy": "--quant-policy",
             "lmdeploy_cache_max_entry_count": "--cache-max-entry-count"}  # fmt: skip
_RANK = "16"
_BACKENDS = ("vllm", "sglang", "transformers", "pt")


def read(start: Start, options: Options) -> Launch:
    """The scenario of a command that answers. Raises UsageError for a backend that is not described."""
    adapters = [one.rpartition("=")[2] for one in options.several("adapters")]  # NAME=PATH
    named = options.first("model", "model_id_or_path", "ckpt_dir") or next(iter(adapters), None)
    model = one_model("ms-swift", named, "--model MODEL")
    backend = "vllm" if start.program == "rollout" else (options.first("infer_backend") or "transformers").lower()
    launcher = by_environment(start)
    many = (launcher.gpus or 1) > 1 and "NPROC_PER_NODE" in start.environment
    notes = [f"NPROC_PER_NODE: each of {launcher.gpus} GPUs has a model of its own; one is answered"] if many else []
    if backend == "lmdeploy":
        asked = [word for name, flag in _LMDEPLOY.items() if (text := options.first(name)) for word in (flag, text)]
        raise UsageError(nearest_to(["lmdeploy", "serve", "api_server", model, *asked]) or "")
    if backend not in _BACKENDS:
        raise UsageError(f'--infer_backend: expected vllm, transformers, sglang or lmdeploy, got "{clipped(backend)}"')
    answering = (_vllm, _sglang, _generating, _generating)[_BACKENDS.index(backend)]
    return answering(options, model, notes)


def _vllm(options: Options, model: str, notes: list[str]) -> Launch:
    words = ["--model", model, *_dtype(options), *_stated(options, _VLLM), *_on(options, _VLLM_SWITCHES)]
    if "vllm_gpu_memory_utilization" not in options.values:
        words += ["--gpu-memory-utilization", "0.9"]
    if "vllm_max_num_seqs" not in options.values:
        words += ["--max-num-seqs", "256"]
    for name, flag in _VLLM_TABLES.items():
        value = options.values.get(name)
        if value is not None:
            words += [flag, json.dumps(value) if isinstance(value, Mapping) else str(value)]
    adapters = options.several("adapters")
    if adapters or options.is_on("vllm_enable_lora"):
        rank = options.first("vllm_max_lora_rank") or _RANK
        words += ["--enable-lora", "--max-loras", str(max(1, len(adapters))), "--max-lora-rank", rank]
    found = vllm.read(Start("vllm", None, tuple(words), {}))
    taken = (*_VLLM, *_VLLM_SWITCHES, *_VLLM_TABLES, "vllm_max_lora_rank", "vllm_enable_lora")
    return _launch("vllm", found.scenario, options, taken, [*notes, *found.notes])


def _sglang(options: Options, model: str, notes: list[str]) -> Launch:
    words = ["--model-path", model, *_dtype(options), *_stated(options, _SGLANG), *_on(options, _SGLANG_SWITCHES)]
    found = sglang.read(Start("sglang", None, tuple(words), {}))
    return _launch("sglang", found.scenario, options, (*_SGLANG, *_SGLANG_SWITCHES), [*notes, *found.notes])


def _generating(options: Options, model: str, notes: list[str]) -> Launch:
    attention, said = attention_of(options)
    found: dict[str, object] = {"batch_size": options.number("max_batch_size") or 1, **attention}
    new_tokens = options.number("max_new_tokens")
    if new_tokens:
        found["new_tokens"] = new_tokens
    dtype = options.first("torch_dtype", "dtype")
    if dtype:
        found["dtype"] = dtype
    bits = options.number("quant_bits", "quantization_bit")
    if bits:
        kind = options.first("bnb_4bit_quant_type") or "nf4"
        found["quantization"] = "bitsandbytes-int8" if bits == 8 else f"bitsandbytes-{kind}"
    if options.first("adapters") and options.first("model"):
        notes.append("adapters are not counted where nothing is served")
    notes.append("a prompt is as long as what is asked: --prompt-tokens says how long")
    taken = ("max_batch_size", "max_new_tokens", "attn_impl", "quant_bits", "quantization_bit", "bnb_4bit_quant_type")
    scenario: dict[str, object] = {"model": model, "task": "generate", "generate": found}
    return _launch("transformers", scenario, options, taken, [*notes, *said])


def _dtype(options: Options) -> list[str]:
    dtype = options.first("torch_dtype", "dtype")
    return ["--dtype", dtype] if dtype else []


def _stated(options: Options, flags: Mapping[str, str]) -> list[str]:
    return [word for name, flag in flags.items() if (text := options.first(name)) is not None for word in (flag, text)]


def _on(options: Options, flags: Mapping[str, str]) -> list[str]:
    return [flag for name, flag in flags.items() if options.is_on(name)]


def _launch(
    engine: str, scenario: dict[str, object], options: Options, taken: tuple[str, ...], notes: list[str]
) -> Launch:
    return launched_by(engine, scenario, options, (*_COMMON, *taken), notes)
