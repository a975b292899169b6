"""What vLLM's configuration refuses before it loads a model, by version.

Read in the wheels 0.6.6, 0.7.3, 0.8.5, 0.9.2, 0.10.0, 0.10.2, 0.11.0 to 0.33.0: config.py (until 0.10), then
config/model.py, cache.py, lora.py, parallel.py, scheduler.py; model_executor/layers/quantization.
"""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.engines.vllm import RECORD
from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.config import checkpoint_dtype
from vramwise.models.lengths import model_length
from vramwise.models.type_facts import has_fact
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.heads import attention_heads, key_value_heads
from vramwise.serving.common.layouts import capability_of
from vramwise.serving.common.own_classes import check_class, check_format_is_known
from vramwise.serving.common.packed_heads import is_packed
from vramwise.serving.common.refusals import (
    check_expert_ranks,
    check_format,
    check_settings,
    fp8_notes,
    scenario_notes,
)
from vramwise.serving.common.shard_refusals import ShardCheck
from vramwise.serving.common.storage import Storage, own_method, quantization_method
from vramwise.serving.common.versions import LATEST, Version, at_version, shown_version, version_of
from vramwise.serving.vllm.draft_refusals import check_drafts
from vramwise.serving.vllm.dtypes import refuses_fp16, vllm_storage
from vramwise.serving.vllm.profile import BOTH_ENGINES, asks_for_v0, is_old_card, profile_of, release, without_engine
from vramwise.serving.vllm.shards import REFINED_BLOCKS, quantized, refined_block
from vramwise.serving.vllm.towers import has_encoder

CHUNKED_PREFILL_ABOVE = 32768  # V0 config.py: chunked prefill by itself above this max_model_len
# cache dtype -> the first version that has it (config/cache.py CacheDType)
_CACHE_DTYPES_SINCE = {
    "bf16": (0, 11), "fp16": (0, 18), "nvfp4": (0, 20), "int8_per_token_head": (0, 20), "fp8_per_token_head": (0, 20),
    "turboquant_k8v4": (0, 20), "turboquant_4bit_nc": (0, 20), "turboquant_k3v4_nc": (0, 20),
    "turboquant_3bit_nc": (0, 20), "int4_per_token_head": (0, 25), "nvfp4_4over6": (0, 29),
}  # fmt: skip
SAME_CACHE_DTYPE = (0, 33)  # config/vllm.py: a 16-bit cache has the model's dtype (0.32.0 no)
_OLD_BLOCKS, _BLOCKS = (1, 8, 16, 32, 64, 128), (1, 8, 16, 32, 64, 128, 256)
_MORE_BLOCKS, _FREE_BLOCKS = (0, 11, 1), (0, 18)  # 0.11.0 and 0.11.2; 0.17.1 and 0.18.1
BLOCK_MULTIPLE = 16  # every dense attention backend on CUDA: v1/attention/backends, get_supported_kernel_block_sizes
# config/lora.py: since which version each rank may be the largest
_RANKS = {1: (0, 11, 1), 8: (0,), 16: (0,), 32: (0,), 64: (0,), 128: (0,), 256: (0,), 320: (0, 8), 512: (0, 8)}
CONTEXT_PARALLEL = (0, 10, 2)  # 0.10.0 has none
# v1/attention/backends/flash_attn.py of 0.8.5, the one backend of V1 there; later versions fall back to others
_FLASH_HEAD_SIZES, _FLASH_ALONE = (32, 64, 96, 128, 160, 192, 224, 256), ((0, 8), (0, 9))
EXPERT_CHECK = (0, 8)  # config: _verify_with_expert_parallelism; 0.7.3 has none
MM_LIMITS_FOR_ALL = (0, 10, 2)  # before, limits for a model of text alone are an error (0.10.0)
# layers/quantization/__init__.py: the first version without it, and what the version before is called
_REMOVED = {"bitsandbytes": ((0, 28), "0.27"), "gguf": ((0, 24), "0.23")}
_LAST_TO_ASK = (0, 11, 0)  # VLLM_USE_V1=0 ends it there; 0.11.1 does not read the variable
_E5M2_FOR_COMPRESSED = (0, 24)  # attention.py: compressed-tensors checkpoints may have it (0.22.1 no)
COMPRESSED_IN_FP32 = (0, 11)  # compressed_tensors.py get_supported_act_dtypes (0.8.5 no, 0.11.0 yes)
# layout of a format -> least compute capability, and the version from which Turing (7.5) is enough
_LEAST_CAPABILITY: dict[str, tuple[float, Version | None]] = {
    "awq": (7.5, None), "gptq": (6.0, None), "marlin": (8.0, (0, 14)), "packed": (8.0, (0, 12)), "fp8": (8.0, (0, 14)),
    "bnb-4bit": (7.0, None), "bnb-int8": (7.0, None), "by-channel": (7.5, None), "mxfp4": (8.0, None),
    "nvfp4": (7.5, None),
}  # fmt: skip
_TURING = 7.5
_VOLTA = 7.0  # of the builds: docs/getting_started/installation, 0.3.3 to 0.14.0; no start looks at it
_BEFORE_REFINED = (0, 28)


def vllm_version(settings: ServeSettings) -> Version:
    """The version that is stated, LATEST where none is; `0.11` alone is the last of its series."""
    return LATEST if settings.engine_version is None else release(without_engine(settings.engine_version)[0])


def _generation(settings: ServeSettings, version: Version, gpu: Gpu | None) -> str:
    return profile_of(version, asks_for_v0(settings) or is_old_card(capability_of(gpu))).generation


def check(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """Raise ScenarioError for what vLLM refuses; notes for what it runs with a warning."""
    settings = scenario.serve
    check_settings(settings, model)
    storage = vllm_storage(model, settings, gpu)
    check_format(settings, model, storage)
    check_expert_ranks(settings, model)
    notes_on_class = check_class(RECORD, settings, model, vllm_version(settings))
    _check_configuration(settings, model, storage, gpu)
    shards = ShardCheck(model, storage, gpu, quantized)
    shards.check(settings)
    return (
        *notes_on_class,
        *scenario_notes(scenario, model),
        *_bf16_notes(settings, model, storage, gpu),
        *_build_notes(gpu),
        *fp8_notes(storage, gpu),
        *(tuple(shards.notes(settings)) or _older_shard_notes(settings, shards)),
        *_notes(settings, model, gpu),
    )


def _check_configuration(settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None) -> None:
    version = vllm_version(settings)
    check_batch(settings.max_num_batched_tokens, settings.max_num_seqs)
    _check_dtype(settings, model, gpu, version)
    _check_format(settings, model, storage, version)
    _check_capability(storage, gpu, version)
    _check_compute(storage, model, version)
    _check_cache(settings, model, storage, version)
    _check_block_size(settings, gpu, version)
    _check_adapters(settings, version)
    _check_splits(settings, model, gpu, version)
    _check_head_size(settings, model, gpu, version)
    if settings.use_v1 is False and BOTH_ENGINES[1] <= version <= _LAST_TO_ASK:
        _refuse("use_v1", "V0 is gone", version, "v1/engine/async_llm.py", "leave it out")
    check_drafts(settings.speculative, model, version)
    if settings.limit_mm_per_prompt and version < MM_LIMITS_FOR_ALL and not has_encoder(model):
        _refuse("limit_mm_per_prompt", "the model reads text alone", version, "config.py", "leave it out")


def _refuse(key: str, what: str, version: Version, where: str, way_out: str) -> None:
    raise ScenarioError(f"serve.{key}", f"{what}, {at_version('vLLM', version)} refuses it ({where}): {way_out}")


def check_batch(tokens: int | None, requests: int | None) -> None:
    """Raises ScenarioError for fewer tokens in a step than requests, given or by default."""
    if tokens is not None and requests is not None and tokens < requests:
        raise ScenarioError(
            "serve.max_num_batched_tokens",
            f"{tokens:,} is less than max_num_seqs {requests:,}, vLLM refuses it: set it to {requests:,} or more",
        )


def _check_dtype(settings: ServeSettings, model: Model, gpu: Gpu | None, version: Version) -> None:
    """bf16 needs compute capability 8.0; `auto` is taken as fp16 there, as newer versions do by themselves."""
    if settings.dtype == "bf16" and gpu is not None and gpu.supports("bf16") is False:
        raise ScenarioError("serve.dtype", f"{gpu.name} has no bf16, vLLM refuses it: set dtype to fp16 (same size)")
    if settings.dtype == "fp16" and refuses_fp16(model, version):
        other = "fp32" if gpu is not None and gpu.supports("bf16") is False else "bf16"
        what = f"fp16 is numerically unstable for {model.config.model_type}"
        _refuse("dtype", what, version, "config/model.py", f"set dtype to {other}")


def removed_format(settings: ServeSettings, model: Model) -> str | None:
    """The format of the weights where newer versions have it no longer."""
    method = quantization_method(model) if settings.quantization is None else settings.quantization
    return next((known for known in _REMOVED if method.startswith(known)), None)


def _check_format(settings: ServeSettings, model: Model, storage: Storage, version: Version) -> None:
    """Formats that the version has no longer, and bitsandbytes' own files, which ranks cannot share."""
    check_format_is_known(RECORD, model, storage, version)
    name = removed_format(settings, model)
    if name is None:
        return
    removed, last = _REMOVED[name]
    if settings.engine_version is not None and LATEST > version >= removed:
        other = "engine llama.cpp" if name == "gguf" else "an AWQ, GPTQ or FP8 checkpoint"
        where = "layers/quantization/__init__.py; a plug-in may bring it"
        _refuse("quantization", f"{last} was the last with {name}", version, where, f"take {other}, or vLLM {last}")
    owned = quantization_method(model) == name == "bitsandbytes"
    if owned and version < removed and settings.tensor_parallel_size > 1:
        what = f"{settings.tensor_parallel_size} ranks cannot share a checkpoint that bitsandbytes has quantized"
        way_out = f"set pipeline_parallel_size to {settings.tensor_parallel_size} instead"
        _refuse("tensor_parallel_size", what, version, "model_loader/bitsandbytes_loader.py", way_out)


def _check_compute(storage: Storage, model: Model, version: Version) -> None:
    """get_supported_act_dtypes of layers/quantization: no format but compressed-tensors' (0.11 on) computes in fp32."""
    rule = storage.quantization
    if rule is None or rule.layout.startswith(("bnb", "gguf")):
        return
    wide = own_method(model, storage) == "compressed-tensors" or rule.layout in ("packed", "by-channel")
    if rule.layout == "mxfp4":
        known: tuple[str, ...] = ("bf16",)
    else:
        known = ("bf16", "fp16", "fp32") if wide and version >= COMPRESSED_IN_FP32 else ("bf16", "fp16")
    if storage.dtype not in known:
        what = f"{rule.name} weights do not compute in {storage.dtype}"
        _refuse("dtype", what, version, "get_supported_act_dtypes", f"set dtype to {' or '.join(known)}")


def _check_capability(storage: Storage, gpu: Gpu | None, version: Version) -> None:
    has, rule = capability_of(gpu), storage.quantization
    if gpu is None or has is None or rule is None:
        return
    row = next((row for name, row in _LEAST_CAPABILITY.items() if rule.layout.startswith(name)), None)
    if row is None:
        return
    least, turing_since = row
    if turing_since is not None and version >= turing_since:
        least = _TURING
    if has < least:
        raise ScenarioError(
            "serve.quantization",
            f"{rule.layout} weights need compute capability {least:g}, {gpu.name} has {has:g}: vLLM refuses it "
            "(get_min_capability of layers/quantization)",
        )


def _check_cache(settings: ServeSettings, model: Model, storage: Storage, version: Version) -> None:
    name = settings.kv_cache_dtype
    since = _CACHE_DTYPES_SINCE.get(name)
    if since is not None and version < since:
        what = f"a cache of {name} came with {shown_version(since)}"
        _refuse("kv_cache_dtype", what, version, "config/cache.py", "set it to auto or fp8_e4m3")
    if name in ("bf16", "fp16") and name != storage.dtype and version >= SAME_CACHE_DTYPE:
        what = f"{name} is not the model's dtype {storage.dtype}"
        _refuse("kv_cache_dtype", what, version, "config/vllm.py", f"set it to auto or {storage.dtype}")
    latent = model.has_latent_cache
    if is_packed(name) and latent:
        what = f"latent attention has no cache of {name}"
        _refuse("kv_cache_dtype", what, version, "config/vllm.py, v1/attention/backends/mla", "set it to fp8")
    if name == "fp8_e5m2" and _has_fp8_scales(settings, model, version):
        what = "fp8_e5m2 does not go with weights of an fp8 checkpoint"
        _refuse("kv_cache_dtype", what, version, "attention layer", "set it to fp8_e4m3")


def _has_fp8_scales(settings: ServeSettings, model: Model, version: Version) -> bool:
    if settings.quantization is not None:
        return settings.quantization == "fp8"
    method = quantization_method(model)
    return method == "fp8" or (method == "compressed-tensors" and version < _E5M2_FOR_COMPRESSED)


def _check_block_size(settings: ServeSettings, gpu: Gpu | None, version: Version) -> None:
    size = settings.block_size
    if size is None or "block_size" not in settings.explicit:
        return
    known = _OLD_BLOCKS if version < _MORE_BLOCKS else _BLOCKS
    if version < _FREE_BLOCKS and size not in known:
        fitting = ", ".join(str(block) for block in known)
        _refuse("block_size", f"{size} is no block size", version, "config/cache.py", f"expected one of {fitting}")
    if _generation(settings, version, gpu) == "V1" and size % BLOCK_MULTIPLE:
        nearest = -(-size // BLOCK_MULTIPLE) * BLOCK_MULTIPLE
        what = f"{size} is no multiple of {BLOCK_MULTIPLE}, which attention on the GPU needs"
        _refuse("block_size", what, version, "v1/attention/backends", f"set it to {nearest}")


def _check_adapters(settings: ServeSettings, version: Version) -> None:
    rank = settings.max_lora_rank
    if rank is None or settings.max_loras is None:
        return
    known = [size for size, since in _RANKS.items() if version >= since]
    if rank in known:
        return
    above = next((size for size in known if size > rank), None)
    way_out = f"set it to {above}" if above is not None else f"{known[-1]} is the largest"
    _refuse("max_lora_rank", f"{rank} is not one of {', '.join(map(str, known))}", version, "config/lora.py", way_out)


def _check_splits(settings: ServeSettings, model: Model, gpu: Gpu | None, version: Version) -> None:
    stages, shared = settings.pipeline_parallel_size, settings.decode_context_parallel_size
    if stages > 1 and has_fact("vllm", "no_pipeline", model.config.model_type, version):
        what = f"{model.config.model_type} has no pipeline parallelism"
        _refuse("pipeline_parallel_size", what, version, "config/model.py", "set tensor_parallel_size instead")
    if stages > 1 and settings.speculative and _generation(settings, version, gpu) == "V0":
        what = "speculative decoding does not go with pipeline stages in V0"
        _refuse("speculative", what, version, "spec_decode/spec_decode_worker.py", "leave one of them out")
    if settings.expert_parallel and version >= EXPERT_CHECK and not model.parts.get("experts"):
        _refuse("expert_parallel", "the model has no experts", version, "config/model.py", "leave it out")
    if shared == 1:
        return
    if version < CONTEXT_PARALLEL:
        what = f"decode context parallelism came with {shown_version(CONTEXT_PARALLEL)}"
        _refuse("decode_context_parallel_size", what, version, "config/parallel.py", "set it to 1")
    _check_context_ranks(settings, attention_heads(model), key_value_heads(model))


def _check_head_size(settings: ServeSettings, model: Model, gpu: Gpu | None, version: Version) -> None:
    first, after = _FLASH_ALONE
    if not first <= version < after or _generation(settings, version, gpu) == "V0":
        return
    for cache in model.caches:
        if cache.kind in ("full", "sliding", "chunked") and cache.key_head_dim not in _FLASH_HEAD_SIZES:
            what = f"FlashAttention, which V1 takes, has no heads of {cache.key_head_dim}"
            _refuse("use_v1", what, version, "v1/attention/backends/flash_attn.py", "set use_v1 to false")


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


def _bf16_notes(settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None) -> Iterator[str]:
    bf16 = settings.dtype == "auto" and checkpoint_dtype(model.config.values) == "bf16"
    if bf16 and gpu is not None and gpu.supports("bf16") is False:
        yield f"{gpu.name} has no bf16: vLLM takes {storage.dtype} (before 0.9 it refuses: set dtype to fp16)"


def _build_notes(gpu: Gpu | None) -> Iterator[str]:
    has = capability_of(gpu)
    if gpu is not None and has is not None and has < _VOLTA:
        yield f"{gpu.name} has compute capability {has:g}: vLLM's own builds run from {_VOLTA} on"


def _older_shard_notes(settings: ServeSettings, shards: ShardCheck) -> tuple[str, ...]:
    """What versions before the refined blocks refuse."""
    if version_of(settings.engine_version) < REFINED_BLOCKS:
        return ()
    older = settings.replace(engine_version=shown_version(_BEFORE_REFINED))
    problem = shards.first_problem(older, _BEFORE_REFINED)
    if problem is None or not problem.of_experts:
        return ()
    sizes = {refined_block(shard, shards.storage.rule_for(shard.parameter)) for shard in shards.shards(settings)}
    refined = ", ".join(str(size) for size in sorted(size for size in sizes if size))
    return (
        f"{problem.what}: vLLM up to 0.28 refuses it, 0.29 and later cut the blocks smaller ({refined}); "
        f"{shards.ways_out(older, problem)} for both",
    )


def _notes(settings: ServeSettings, model: Model, gpu: Gpu | None) -> Iterator[str]:
    """What newer or older versions, or other settings, would refuse."""
    version = vllm_version(settings)
    method = quantization_method(model)
    for name, (removed, last) in _REMOVED.items():
        if (settings.quantization or method).startswith(name) and version >= removed:
            yield f"vLLM {last} was the last with {name}, newer ones need a plug-in for it: say engine_version {last}"
    if settings.use_v1 is not None and not BOTH_ENGINES[0] <= version < BOTH_ENGINES[1]:
        only = "newer" if version >= BOTH_ENGINES[1] else "older"
        yield f"use_v1 changed nothing here: vLLM 0.8 to 0.10 have both engines, this answer is of the {only}"
    tokens = settings.max_num_batched_tokens
    longest = settings.max_model_len or model_length(model)
    old = _generation(settings, version, gpu) == "V0"
    if old and tokens is not None and tokens < longest <= CHUNKED_PREFILL_ABOVE:
        yield f"V0 takes max_num_batched_tokens {tokens:,} below {longest:,} tokens with --enable-chunked-prefill alone"
