"""What engines refuse at their start, and what they only warn about.

Here stands what several engines share; `vllm/refusals.py` and `sglang_refusals.py` hold what is one engine's own,
`shard_refusals.py` what hangs on a rank's share of the weights. Sources: vLLM 0.33.0 config/model.py
verify_with_parallel_config; SGLang 0.5.23 layers/linear.py divide and its server arguments.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.checkpoint_dtype import checkpoint_dtype
from vramwise.models.lengths import model_length
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.heads import attention_heads, key_value_heads, shares_evenly
from vramwise.serving.common.layouts import capability_of, engine_storage
from vramwise.serving.common.shard_refusals import check_shards, shard_notes
from vramwise.serving.common.storage import Storage
from vramwise.serving.sglang.refusals import check_sglang, sglang_notes
from vramwise.serving.vllm.refusals import check_vllm, vllm_notes

_CACHE_DTYPES = {
    "vllm": ("auto", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "nvfp4"),
    "sglang": ("auto", "bf16", "fp8_e4m3", "fp8_e5m2"),
    "tgi": ("auto", "fp8_e4m3", "fp8_e5m2"),
    "tensorrt-llm": ("auto", "bf16", "fp16", "fp8_e4m3", "int8", "nvfp4"),
}
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "text-generation-inference", "tensorrt-llm": "TensorRT-LLM"}
_FP8_COMPUTE = 8.9


def check_engine(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """Raise ScenarioError for what the engine refuses; return notes for what it runs with a warning."""
    settings = scenario.serve
    if settings.engine not in _NAMES:
        return ()
    _check_splits(settings, model)
    _check_cache_dtype(settings)
    storage = engine_storage(model, settings, settings.engine, gpu)
    if settings.engine == "vllm":
        check_vllm(settings, model, storage, gpu)
    elif settings.engine == "sglang":
        check_sglang(settings, model)
    if settings.engine != "tensorrt-llm":
        check_shards(settings, model, storage, gpu, _NAMES[settings.engine])
    return tuple(_warnings(scenario, model, storage, gpu))


def _check_splits(settings: ServeSettings, model: Model) -> None:
    """Heads are shared evenly, whole layers go to stages, ranks of context parallelism are ranks of tensors'."""
    ranks, name = settings.tensor_parallel_size, _NAMES[settings.engine]
    heads = attention_heads(model)
    if heads % ranks:
        fitting = ", ".join(str(size) for size in (1, 2, 4, 5, 6, 7, 8, 16, 32) if heads % size == 0)
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} does not divide the {heads} attention heads, {name} refuses it: expected one of {fitting}",
        )
    if settings.pipeline_parallel_size > model.num_layers:
        raise ScenarioError(
            "serve.pipeline_parallel_size",
            f"{settings.pipeline_parallel_size} stages are more than the {model.num_layers} layers",
        )
    kv_heads = key_value_heads(model)
    if not shares_evenly(kv_heads, ranks):
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} neither divides the {kv_heads} key/value heads nor is a multiple of them, {name} refuses it",
        )
    if ranks % settings.decode_context_parallel_size:
        raise ScenarioError(
            "serve.decode_context_parallel_size",
            f"{settings.decode_context_parallel_size} does not divide tensor_parallel_size {ranks}, {name} refuses it",
        )


def _check_cache_dtype(settings: ServeSettings) -> None:
    known = _CACHE_DTYPES[settings.engine]
    if settings.kv_cache_dtype not in known:
        raise ScenarioError(
            "serve.kv_cache_dtype",
            f"{_NAMES[settings.engine]} has no cache of {settings.kv_cache_dtype}: expected one of {', '.join(known)}",
        )


def _warnings(scenario: Scenario, model: Model, storage: Storage, gpu: Gpu | None) -> Iterator[str]:
    settings = scenario.serve
    length = model_length(model)
    if settings.max_model_len is not None and settings.max_model_len > length:
        how = "; vLLM wants VLLM_ALLOW_LONG_MAX_MODEL_LEN=1" if settings.engine == "vllm" else ""
        yield f"max_model_len {settings.max_model_len:,} is beyond the model's own {length:,}{how}"
    used = settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size
    if used < scenario.num_gpus:
        yield (
            f"{used} of {scenario.num_gpus} GPUs {'is' if used == 1 else 'are'} used: {_NAMES[settings.engine]} takes "
            f"tensor_parallel_size × pipeline_parallel_size × data_parallel_size; set tensor_parallel_size to "
            f"{scenario.num_gpus // (used // settings.tensor_parallel_size)}"
        )
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    if (
        settings.engine == "vllm"
        and settings.dtype == "auto"
        and no_bf16
        and checkpoint_dtype(model.config.values) == "bf16"
    ):
        assert gpu is not None
        yield f"{gpu.name} has no bf16: vLLM takes {storage.dtype} (before 0.9 it refuses: set dtype to fp16)"
    has, rule = capability_of(gpu), storage.quantization
    if gpu is not None and has is not None and rule is not None and rule.layout == "fp8" and has < _FP8_COMPUTE:
        yield f"{gpu.name} does not compute in fp8: the weights stay 8-bit and are unpacked (weight-only Marlin)"
    if settings.engine != "tensorrt-llm":
        yield from shard_notes(settings, model, storage, gpu, _NAMES[settings.engine])
    if settings.engine == "vllm":
        yield from vllm_notes(settings, model, gpu, length)
    elif settings.engine == "sglang":
        yield from sglang_notes(settings, model)
