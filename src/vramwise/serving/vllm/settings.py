"""vLLM's own values for what a scenario leaves open."""

from __future__ import annotations

from dataclasses import replace

from vramwise.hardware import Gpu
from vramwise.hardware.drivers import branch_number
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.records import record
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import capability_of, gfx_of
from vramwise.serving.common.resolved import ResolvedServe, cache_element_bytes
from vramwise.serving.vllm.block_sizes import default_block_size
from vramwise.serving.vllm.dtypes import cache_dtype, vllm_storage
from vramwise.serving.vllm.fallback import falls_back
from vramwise.serving.vllm.pooling import pools
from vramwise.serving.vllm.profile import (
    DEFAULT_VERSION,
    HYBRID_CACHING_VERSION,
    IN_FLIGHT_VERSION,
    V2_RUNNER_ALL,
    V2_RUNNER_FIRST,
    Profile,
    asks_for_v0,
    default_batched_tokens,
    is_old_card,
    profile_of,
    release,
    runs_v2_runner,
    without_engine,
)
from vramwise.serving.vllm.refusals import CHUNKED_PREFILL_ABOVE, check_batch
from vramwise.serving.vllm.towers import has_encoder
from vramwise.serving.vllm.whole_items import least_batched_tokens

V0_MAX_NUM_SEQS = 256
V0_LEAST_BATCHED_TOKENS = 2048
V0_LEAST_MULTIMODAL_TOKENS = 5120
ROCM_PROFILES_GRAPHS = (0, 26)
UNKNOWN_MULTIPROCESSORS = 132  # an unknown card counts as an H100


@record(kw_only=True)
class Resolved(ResolvedServe):
    """Settings with nothing left open, and how the version accounts on this card; `share` is the utilization."""

    profile: Profile
    multiprocessors: int

    on_v2_runner: bool
    """Whether the second model runner runs the model."""

    on_rocm: bool = False
    gfx: str = ""
    driver_branch: int | None = None

    @property
    def in_flight_tokens(self) -> int:
        """Tokens that are scheduled and not settled: from 0.26 on one batch for each step that runs at once, two where
        steps are scheduled ahead (config/vllm.py max_concurrent_batches, max_in_flight_tokens); windows keep them."""
        stages = self.settings.pipeline_parallel_size
        if self.version < IN_FLIGHT_VERSION:
            return self.batched_tokens
        ahead = stages == 1 or self.version >= V2_RUNNER_ALL
        return self.batched_tokens * (stages + 1 if ahead else stages)


def version_and_profile(given: ServeSettings, gpu: Gpu | None) -> tuple[str, Profile]:
    """The version without the engine's generation, and how it accounts on this card.

    Before ROCM_PROFILES_GRAPHS, AMD's cards profile no graphs, so the budget holds none (0.19.0, 0.20.0 and 0.25.0
    v1/worker/gpu_worker.py determine_available_memory asks is_cuda; 0.26.0 to 0.33.0 is_cuda_alike).
    """
    text = without_engine(given.engine_version or DEFAULT_VERSION)[0]
    version = release(text)
    profile = profile_of(version, is_old_card(capability_of(gpu)) or asks_for_v0(given))
    on_rocm = gpu is not None and gpu.vendor == "AMD"
    if on_rocm and version < ROCM_PROFILES_GRAPHS and profile.graphs_in_budget:
        profile = replace(profile, graphs_in_budget=False)
    return text, profile


def resolve_settings(scenario: Scenario, model: Model, gpu: Gpu | None) -> Resolved:
    """Defaults by version, GPU and model (engine/arg_utils.py); the API server's where entry points differ."""
    given = scenario.serve
    version_text, profile = version_and_profile(given, gpu)
    version = release(version_text)
    storage = vllm_storage(model, given, gpu)
    if falls_back(given, model, storage, version, capability_of(gpu)):
        profile = profile_of(version, True)
    draft = str((given.speculative or {}).get("method") or "").lower()
    on_rocm = gpu is not None and gpu.vendor == "AMD"
    second = runs_v2_runner(
        version,
        model,
        quantized=storage.quantization is not None,
        draft=draft,
        pooling=pools(model, given),
        rocm=on_rocm,
    )
    if given.use_v2_runner is not None and version >= V2_RUNNER_FIRST:
        second = given.use_v2_runner
    second = second and profile.generation == "V1"
    if second and version < V2_RUNNER_ALL:
        # v1/worker/gpu/model_runner.py profile_cudagraph_memory: 0 in 0.20.0 to 0.28.0. Thirty starts of 0.24.0 on A100
        # (SpecDecoding-Study-vLLM-SGLang server_logs) have the same cache whether graphs take 0.49 or 0.88 GiB
        profile = replace(profile, graphs_in_budget=False)
    length = given.max_model_len or model_length(model)
    tokens, seqs = _batch(given, model, gpu, scenario.gpu_total_bytes, version, profile, length)
    utilization = given.gpu_memory_utilization or profile.utilization
    cache = cache_dtype(model, given, storage, version)
    element_bytes = cache_element_bytes(cache, storage)
    block = given.block_size or default_block_size(model, version, capability_of(gpu), element_bytes)
    settings = given.replace(
        engine_version=version_text,
        use_v1=False if asks_for_v0(given) else given.use_v1,
        dtype=storage.dtype,
        kv_cache_dtype=cache,
        max_model_len=length,
        max_num_batched_tokens=tokens,
        max_num_seqs=seqs,
        gpu_memory_utilization=utilization,
        block_size=block,
        enforce_eager=bool(given.enforce_eager),
        enable_prefix_caching=_caches_prefixes(given, model, version, profile),
    )
    return Resolved(
        settings=settings, version=version, profile=profile, storage=storage, max_model_len=length,
        batched_tokens=tokens, max_num_seqs=seqs, share=utilization, block_size=block, capability=capability_of(gpu),
        multiprocessors=(gpu.sm_count if gpu is not None else None) or UNKNOWN_MULTIPROCESSORS, on_v2_runner=second,
        on_rocm=on_rocm, gfx=gfx_of(gpu), driver_branch=branch_number(scenario.driver),
    )  # fmt: skip


def _caches_prefixes(given: ServeSettings, model: Model, version: tuple[int, ...], profile: Profile) -> bool:
    """Given, or on in V1; models with states only since HYBRID_CACHING_VERSION, and never without attention."""
    if given.enable_prefix_caching is not None:
        return given.enable_prefix_caching
    kinds = {cache.kind for cache in model.caches}
    if "recurrent" not in kinds:
        return profile.generation == "V1"
    return version >= HYBRID_CACHING_VERSION and bool(kinds & {"full", "latent", "sliding", "chunked"})


def _batch(
    given: ServeSettings, model: Model, gpu: Gpu | None, total: int | None, version: tuple[int, ...],
    profile: Profile, length: int,
) -> tuple[int, int]:  # fmt: skip
    """max_num_batched_tokens and max_num_seqs."""
    if profile.generation == "V1":
        tokens, seqs = default_batched_tokens(version, gpu, total, offline=given.offline_inference)
        tokens = max(tokens, least_batched_tokens(model, given, version))
        # a default number of sequences never exceeds the tokens that were asked for
        seqs = given.max_num_seqs or min(seqs, given.max_num_batched_tokens or seqs)
        return given.max_num_batched_tokens or max(min(tokens, seqs * length), seqs), seqs
    seqs = given.max_num_seqs or min(V0_MAX_NUM_SEQS, given.max_num_batched_tokens or V0_MAX_NUM_SEQS)
    if given.max_num_batched_tokens:
        return given.max_num_batched_tokens, seqs
    multimodal = has_encoder(model)
    windowed = any(cache.window for cache in model.caches)
    chunked = length > CHUNKED_PREFILL_ABOVE and not (windowed or multimodal or given.speculative or given.max_loras)
    least = V0_LEAST_MULTIMODAL_TOKENS if multimodal else V0_LEAST_BATCHED_TOKENS
    tokens = max(length, least)
    if chunked:
        tokens = 2048 if version >= (0, 6, 5) else 512
    check_batch(tokens, seqs)
    return tokens, seqs
