"""What differs between versions of vLLM, read in the wheels 0.2.4 to 0.3.2, 0.7.3, 0.8.5, 0.11.2, 0.33.0."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from vramwise.engines.vllm import RECORD
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import version_of
from vramwise.units import GIB, round_up

DEFAULT_VERSION = RECORD.newest

LARGE_CARD_BYTES = 70 * GIB
LARGEST_CARD_BYTES = 160 * GIB


@record
class Profile:
    """One range of versions.

    `generation`: V0 or V1 engine. `counts_context`: everything outside torch's pool is charged, the CUDA context too;
    `counts_non_torch`: anything outside it is. `graphs_in_budget`: CUDA graphs are subtracted from the KV cache.
    `nccl_in_budget`: the first snapshot is taken before NCCL starts. `hybrid`: layers of different kinds share one
    pool; else each is charged as full attention. `largest_group_ratio`: see `plan_pool`. `tokens_are_concurrency`:
    the printed token count is concurrency x length. `capture_steps`: (from, step) of CUDA graph sizes beyond 1, 2, 4.
    """

    generation: str
    utilization: float
    counts_context: bool
    graphs_in_budget: bool
    nccl_in_budget: bool
    hybrid: bool
    largest_group_ratio: float
    tokens_are_concurrency: bool
    capture_steps: tuple[tuple[int, int, int], ...]
    source: str
    counts_non_torch: bool = True


_V0 = Profile(
    generation="V0",
    utilization=0.9,
    counts_context=False,
    graphs_in_budget=False,
    nccl_in_budget=True,
    hybrid=False,
    largest_group_ratio=1.0,
    tokens_are_concurrency=False,
    capture_steps=((8, 256, 8),),
    source="vLLM 0.7.3 worker/worker.py determine_num_available_blocks",
)
# peak = torch.cuda.max_memory_allocated() up to 0.2.4; what the card lacks after the profile run from 0.2.5 on, the
# CUDA context with it until 0.3.1 takes what is free once there is one (init_gpu_memory)
_V0_ALLOCATED = replace(_V0, counts_non_torch=False, source="vLLM 0.2.4 worker/worker.py")
_V0_TAKEN = replace(_V0, counts_context=True, source="vLLM 0.2.5 to 0.3.0 worker/worker.py")
_V1_08 = replace(
    _V0,
    generation="V1",
    counts_context=True,
    capture_steps=((8, 512, 8),),
    source="vLLM 0.8.5 v1/worker/gpu_worker.py determine_available_memory",
)
_V1_09 = replace(_V1_08, counts_context=False, hybrid=False)
_V1_11 = replace(
    _V1_09, nccl_in_budget=False, hybrid=True, source="vLLM 0.11.2 v1/worker/gpu_worker.py, utils/mem_utils.py"
)
_V1_12 = replace(_V1_11, largest_group_ratio=1.25, capture_steps=((8, 248, 8), (256, 1024, 16)))
_V1_18 = replace(_V1_12, largest_group_ratio=1.5, source="vLLM 0.18.1 v1/core/kv_cache_utils.py")
_V1_20 = replace(
    _V1_18,
    utilization=0.92,
    graphs_in_budget=True,
    source="vLLM 0.20.0 config/cache.py, envs.py, v1/worker/gpu_worker.py",
)
_V1_20_1 = replace(
    _V1_20,
    tokens_are_concurrency=True,
    source="vLLM 0.20.1 and 0.33.0 v1/core/kv_cache_utils.py _report_kv_cache_config",
)

# version from which a profile holds; hybrid pools came with 0.10, context left the charge with 0.9.1; from 0.12 on each
# change was read in the wheels on both of its sides
_PROFILES: tuple[tuple[tuple[int, ...], Profile], ...] = (
    ((0,), _V0_ALLOCATED),
    ((0, 2, 5), _V0_TAKEN),
    ((0, 3, 1), _V0),
    ((0, 8), _V1_08),
    ((0, 9), replace(_V1_08, hybrid=False)),
    ((0, 9, 1), _V1_09),
    ((0, 10), replace(_V1_09, hybrid=True)),
    ((0, 11), _V1_11),
    ((0, 11, 1), replace(_V1_11, capture_steps=_V1_12.capture_steps)),
    ((0, 12), _V1_12),
    ((0, 18), _V1_18),
    ((0, 20), _V1_20),
    ((0, 20, 1), _V1_20_1),
)


BOTH_ENGINES = (0, 8), (0, 11)  # V1 by itself and V0 where it is told to, or where V1 does not do
SUMS_FULL_LAYERS = (0, 11)  # v1/kv_cache_interface.py UniformTypeKVCacheSpecs, not in 0.10.2
STATE_BLOCKS_VERSION = (0, 15)  # a request's states are counted by mode from here on (MambaSpec max_memory_usage_bytes)
# v1/worker/gpu_worker.py, utils/mem_utils.py: what the process took and transient_peak_headroom (the peak less what is
# allocated after it) are charged in 0.27.1; in 0.26.0 weights and the increase of the peak, in which what is made
# between the two (the second runner's sampler state) does not appear
HEADROOM_VERSION = (0, 26, 1)
IN_FLIGHT_VERSION = (0, 26)  # windows keep the tokens of every batch in flight (v1/kv_cache_interface.py)
HYBRID_CACHING_VERSION = (0, 26)  # prefix caching of models with states is on by itself
V2_RUNNER_FIRST = (0, 22)
V2_RUNNER_QUANTIZED, V2_RUNNER_DENSE, V2_RUNNER_ALL = (0, 24), (0, 25), (0, 29)  # config/vllm.py use_v2_model_runner
V2_DRAFTS = ("eagle", "dflash", "dspark", "mtp", "extract_hidden_states")  # 0.22.0 to 0.29.0
V2_RUNNER_DRAFTS = (0, 30)
V1_DRAFTS = (
    ((0, 31), ("ngram", "draft_model", "suffix", "medusa", "mlp_speculator")),
    ((0, 32), ("ngram", "suffix", "medusa", "mlp_speculator")),
    ((0, 33), ("suffix", "medusa", "mlp_speculator")),
)
V1_DRAFTS_SINCE = ("suffix",)
LARGEST_CAPTURE, LARGER_CAPTURE = 512, 1024  # tokens of the largest size that vLLM captures by itself
LARGER_CAPTURE_VERSION, BLACKWELL_SERVER = (0, 28), 10
LAST_PATCH = 999
_V0_ENGINE = re.compile(r"\s*\(?\bV0\b(?!\.\d)\)?", re.IGNORECASE)  # not the beginning of v0.11.0


def release(text: str) -> tuple[int, ...]:
    """A version to compare with; `0.6` alone is the last release of its series."""
    version = version_of(text)
    return (*version, LAST_PATCH) if len(version) == 2 else version


def without_engine(text: str) -> tuple[str, bool]:
    """The version in a text such as `0.8.5 (V0)`, and whether it names the older engine."""
    return _V0_ENGINE.sub("", text), _V0_ENGINE.search(text) is not None


def asks_for_v0(settings: ServeSettings) -> bool:
    """Whether the older engine is asked for, with the version or by VLLM_USE_V1=0."""
    return settings.use_v1 is False or without_engine(settings.engine_version or "")[1]


@lru_cache(maxsize=256)
def profile_of(version: tuple[int, ...], old_card: bool) -> Profile:
    """The profile of a version; 0.8 to 0.10 fall back to V0 on cards before compute capability 8.0, or where they
    are told to (VLLM_USE_V1=0)."""
    found = _PROFILES[0][1]
    for start, profile in _PROFILES:
        if version >= start:
            found = profile
    if old_card and BOTH_ENGINES[0] <= version < BOTH_ENGINES[1]:
        return _V0
    return found


def is_old_card(capability: float | None) -> bool:
    """NVIDIA card before compute capability 8.0."""
    return capability is not None and capability < 8.0


def default_batched_tokens(
    version: tuple[int, ...], gpu: Gpu | None, total_bytes: int | None, *, offline: bool = False
) -> tuple[int, int]:
    """V1's max_num_batched_tokens and max_num_seqs, by the card's size; `offline`: of `LLM`, not of the API server.

    Source: engine/arg_utils.py of 0.8.5, 0.11.2 and 0.14.0 to 0.33.0. An unknown card counts as one of 80 GB, one that
    shares its host's memory as one without any: NVML has no memory information of GB10 and Thor, and what cannot be
    asked for counts as 0 (2,048 tokens in logs of Thor, 0.10.2, and GB10, 0.25.1); 0.33 has a rule for GB10.
    """
    total = total_bytes or (gpu.memory_total_bytes if gpu is not None else None) or 80 * GIB
    if gpu is not None and gpu.unified_memory and gpu.vendor == "NVIDIA":
        total = 0
    if version >= (0, 28) and total >= LARGEST_CARD_BYTES:
        return 16384, 1024
    a100 = gpu is not None and "a100" in gpu.id and version >= (0, 9)
    if total >= LARGE_CARD_BYTES and not a100:
        return 16384 if offline else 8192, 1024
    return 8192 if offline else 2048, 256


def largest_capture(version: tuple[int, ...], capability: float | None) -> int:
    """1,024 tokens on compute capability 10.x (0.27.1 and 0.28.0 config/vllm.py _set_cudagraph_sizes)."""
    larger = version >= LARGER_CAPTURE_VERSION and int(capability or 0) == BLACKWELL_SERVER
    return LARGER_CAPTURE if larger else LARGEST_CAPTURE


def capture_sizes(
    profile: Profile,
    max_num_seqs: int,
    given: tuple[int, ...] = (),
    *,
    of_requests: bool = False,
    query_length: int = 1,
    whole_queries: bool = False,
    most_tokens: int = LARGEST_CAPTURE,
) -> int:
    """How many CUDA graphs are captured: of batches of tokens, or of whole decode steps of up to max_num_seqs requests
    with `query_length` tokens each; `given`: sizes in place of vLLM's own; `whole_queries`: sizes are rounded up to
    such of whole queries, as the second runner does (0.24.0 adjust_cudagraph_sizes_for_spec_decode).

    Source: v1/worker/gpu_model_runner.py capture_model."""
    largest = max_num_seqs if profile.generation == "V0" else min(2 * max_num_seqs * query_length, most_tokens)
    sizes = set(given) or _default_sizes(profile, largest)
    if given:
        largest = max(given)
    if whole_queries:
        sizes = {round_up(size, query_length) for size in sizes}
    if of_requests:
        largest = min(largest, max_num_seqs * query_length)
    return sum((query_length if of_requests else 1) <= size <= largest for size in sizes)


def _default_sizes(profile: Profile, largest: int) -> set[int]:
    sizes = {1, 2, 4}
    for start, stop, step in profile.capture_steps:
        sizes.update(range(start, stop + 1, step))
    if profile.generation == "V0":
        sizes.update(range(264, largest + 1, 8))
    return sizes


def runs_v2_runner(
    version: tuple[int, ...],
    model: Model,
    *,
    quantized: bool,
    draft: str = "",
    pooling: bool = False,
    rocm: bool = False,
) -> bool:
    """Whether the model runs on the second model runner, which samples otherwise.

    Read in 0.22.0 to 0.33.0 config/vllm.py: some types from 0.22 on (not quantized before 0.24), models without experts
    and states from 0.25, all from 0.29, some on AMD's cards (`rocm`) later; before 0.29 none that pools; none with
    another way of drafting (`draft`) than its own, and from 0.25 on all with DSpark.
    """
    if "dspark" in draft and version >= V2_RUNNER_DENSE:
        return True
    if draft and not _drafts_on_v2_runner(version, draft):
        return False
    if version >= V2_RUNNER_ALL:
        return not (rocm and has_fact("vllm", "first_runner_on_rocm", model.config.model_type, version))
    if pooling:
        return False
    named = has_fact("vllm", "second_runner", model.config.model_type, version)
    if version >= V2_RUNNER_DENSE:
        states = any(cache.kind == "recurrent" for cache in model.caches)
        return not states and ("experts" not in model.parts or named)
    return named and (version >= V2_RUNNER_QUANTIZED or not quantized)


def _drafts_on_v2_runner(version: tuple[int, ...], draft: str) -> bool:
    """Whether the second model runner drafts so (config/vllm.py _get_v2_model_runner_unsupported_features): a list of
    what it does until 0.29, of what it does not since."""
    if version < V2_RUNNER_DRAFTS:
        return any(name in draft for name in V2_DRAFTS)
    others = next((names for before, names in V1_DRAFTS if version < before), V1_DRAFTS_SINCE)
    return not any(name in draft for name in others)
