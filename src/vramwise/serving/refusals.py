"""What engines refuse at their start, and what they only warn about.

Sources: vLLM 0.33.0 config/model.py verify_with_parallel_config, platforms/cuda.py check_if_supports_dtype,
config/cache.py CacheDType, config/scheduler.py, get_min_capability of model_executor/layers/quantization (0.8.5,
0.11.2, 0.33.0); SGLang 0.5.23 layers/linear.py divide and its server arguments.
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
from vramwise.serving.layouts import capability_of
from vramwise.serving.storage import storage_of
from vramwise.serving.versions import version_of

_CACHE_DTYPES = {
    "vllm": ("auto", "bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "nvfp4"),
    "sglang": ("auto", "bf16", "fp8_e4m3", "fp8_e5m2"),
    "tgi": ("auto", "fp8_e4m3", "fp8_e5m2"),
    "tensorrt-llm": ("auto", "bf16", "fp16", "fp8_e4m3", "int8", "nvfp4"),
}
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "text-generation-inference", "tensorrt-llm": "TensorRT-LLM"}
# layout of a format -> least compute capability in vLLM
_LEAST_CAPABILITY = {"awq": 7.5, "gptq": 6.0, "bnb-4bit": 7.0, "bnb-8bit": 7.0, "mxfp4": 8.0, "nvfp4": 7.5}
_FP8_SINCE_TURING = (0, 12)
_FP8_COMPUTE = 8.9


def check_engine(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """Raise ScenarioError for what the engine refuses; return notes for what it runs with a warning."""
    settings = scenario.serve
    if settings.engine not in _NAMES:
        return ()
    _check_splits(settings, model)
    _check_cache_dtype(settings)
    if settings.engine == "vllm":
        check_batch(settings.max_num_batched_tokens, settings.max_num_seqs)
        _check_dtype(settings, gpu)
        _check_capability(settings, model, gpu)
    return tuple(_warnings(scenario, model, gpu))


def attention_heads(model: Model) -> int:
    """Query heads of the first layer that has attention; 0 where none has."""
    for block in model.layers():
        for op in block.ops:
            if op.kind.endswith("attention") and "num_heads" in op.settings:
                return int(op.settings["num_heads"])
    return 0


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
    kv_heads = _kv_heads(model)
    if kv_heads and ranks % kv_heads and kv_heads % ranks:
        raise ScenarioError(
            "serve.tensor_parallel_size",
            f"{ranks} neither divides the {kv_heads} key/value heads nor is a multiple of them, {name} refuses it",
        )
    if ranks % settings.decode_context_parallel_size:
        raise ScenarioError(
            "serve.decode_context_parallel_size",
            f"{settings.decode_context_parallel_size} does not divide tensor_parallel_size {ranks}, {name} refuses it",
        )
    if settings.decode_context_parallel_size > 1 and settings.engine == "vllm":
        _check_context_ranks(settings, heads, kv_heads)


def _kv_heads(model: Model) -> int:
    """Key/value heads of the first layer with a cache of heads; 0 for latent attention and without attention."""
    kinds = ("full", "sliding", "chunked")
    return next((cache.num_key_value_heads for cache in model.caches if cache.kind in kinds), 0)


def _check_context_ranks(settings: ServeSettings, heads: int, kv_heads: int) -> None:
    """Ranks that would hold copies of a key/value head share its tokens instead, and no others can.

    Source: vLLM 0.33.0 config/model.py verify_with_parallel_config.
    """
    ranks, shared = settings.tensor_parallel_size, settings.decode_context_parallel_size
    if kv_heads and (shared > ranks // kv_heads or (heads // kv_heads) % shared):
        most = max((size for size in range(1, ranks // kv_heads + 1) if (heads // kv_heads) % size == 0), default=1)
        raise ScenarioError(
            "serve.decode_context_parallel_size",
            f"{shared} ranks cannot share the tokens of {kv_heads} key/value heads over tensor_parallel_size {ranks}, "
            f"vLLM refuses it: set it to {most}, or tensor_parallel_size to {kv_heads * shared}",
        )


def _check_cache_dtype(settings: ServeSettings) -> None:
    known = _CACHE_DTYPES[settings.engine]
    if settings.kv_cache_dtype not in known:
        raise ScenarioError(
            "serve.kv_cache_dtype",
            f"{_NAMES[settings.engine]} has no cache of {settings.kv_cache_dtype}: expected one of {', '.join(known)}",
        )


def check_batch(tokens: int | None, requests: int | None) -> None:
    """Raises ScenarioError for fewer tokens in a step than requests, given or by default."""
    if tokens is not None and requests is not None and tokens < requests:
        raise ScenarioError(
            "serve.max_num_batched_tokens",
            f"{tokens:,} is less than max_num_seqs {requests:,}, vLLM refuses it: set it to {requests:,} or more",
        )


def _check_dtype(settings: ServeSettings, gpu: Gpu | None) -> None:
    """bf16 needs compute capability 8.0; `auto` is taken as fp16 there, as newer versions do by themselves."""
    if settings.dtype == "bf16" and gpu is not None and gpu.supports("bf16") is False:
        raise ScenarioError("serve.dtype", f"{gpu.name} has no bf16, vLLM refuses it: set dtype to fp16 (same size)")


def _check_capability(settings: ServeSettings, model: Model, gpu: Gpu | None) -> None:
    has, layout = capability_of(gpu), _layout(settings, model)
    if gpu is None or has is None or layout is None:
        return
    least = next((value for name, value in _LEAST_CAPABILITY.items() if layout.startswith(name)), None)
    if layout.startswith("fp8"):
        least = 7.5 if version_of(settings.engine_version) >= _FP8_SINCE_TURING else 8.0
    if least is not None and has < least:
        raise ScenarioError(
            "serve.quantization",
            f"{layout} weights need compute capability {least:g}, {gpu.name} has {has:g}: vLLM refuses it",
        )


def _layout(settings: ServeSettings, model: Model) -> str | None:
    if settings.quantization == "gguf":
        return None
    rule = storage_of(model, settings.dtype, settings.quantization, settings.quantization_group_size).quantization
    return rule.layout if rule is not None else None


def _warnings(scenario: Scenario, model: Model, gpu: Gpu | None) -> Iterator[str]:
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
        yield f"{gpu.name} has no bf16: vLLM takes fp16 (before 0.9 it refuses: set dtype to fp16)"
    has, layout = capability_of(gpu), _layout(settings, model)
    if gpu is not None and has is not None and layout is not None and layout.startswith("fp8") and has < _FP8_COMPUTE:
        yield f"{gpu.name} does not compute in fp8: the weights stay 8-bit and are unpacked (weight-only Marlin)"
