"""What SGLang's server arguments refuse. Read in the wheels 0.4.6, 0.4.9, 0.5.4, 0.5.10 and 0.5.23."""

from __future__ import annotations

from vramwise.engines.sglang import RECORD
from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.layouts import capability_of, server_storage
from vramwise.serving.common.own_classes import check_class, check_format_is_known
from vramwise.serving.common.refusals import (
    check_expert_ranks,
    check_format,
    check_settings,
    expert_count,
    fp8_notes,
    scenario_notes,
)
from vramwise.serving.common.shard_refusals import ShardCheck
from vramwise.serving.common.versions import at_version, shown_version, version_of
from vramwise.serving.sglang.shards import quantized

_CACHE_DTYPES_SINCE = {"bf16": (0, 5)}  # server_args.py --kv-cache-dtype (0.4.9 no, 0.5.4 yes)
LEAST_CAPABILITY = 7.5
"""0.4.6 model_executor/model_runner.py load_model, 0.5.23 model_runner_components/load_model_utils.py: "SGLang only
supports sm75 and above"."""
UNEVEN_EXPERTS = (0, 5, 10)  # moe/fused_moe_triton/layer.py: num_experts % ep_size == 0 (0.5.4 yes, 0.5.10 no)


def check(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    """Raise ScenarioError for what SGLang refuses; notes for what it runs with a warning."""
    settings = scenario.serve
    _check_card(gpu)
    check_settings(settings, model)
    storage = server_storage(model, settings, gpu)
    check_format(settings, model, storage)
    if not settings.expert_parallel:  # with it, only ranks that share an expert count
        check_expert_ranks(settings, model)
    version = version_of(settings.engine_version)
    notes_on_class = check_class(RECORD, settings, model, version)
    check_format_is_known(RECORD, model, storage, version)
    _check_arguments(settings, model)
    shards = ShardCheck(model, storage, gpu, quantized)
    shards.check(settings)
    return (*notes_on_class, *scenario_notes(scenario, model), *fp8_notes(storage, gpu), *shards.notes(settings))


def _check_card(gpu: Gpu | None) -> None:
    has = capability_of(gpu)
    if gpu is not None and has is not None and has < LEAST_CAPABILITY:
        what = f"{gpu.name} has compute capability {has:g}, {RECORD.title} refuses less than {LEAST_CAPABILITY:g}"
        raise ScenarioError("gpu", f"{what} (model_executor, load_model): take a newer card or another engine")


def _check_arguments(settings: ServeSettings, model: Model) -> None:
    version = version_of(settings.engine_version)
    name = at_version(RECORD.title, version)
    since = _CACHE_DTYPES_SINCE.get(settings.kv_cache_dtype)
    if since is not None and version < since:
        what = f"a cache of {settings.kv_cache_dtype} came with {shown_version(since)}"
        raise ScenarioError("serve.kv_cache_dtype", f"{what}, {name} refuses it (server_args.py): set it to auto")
    chunk, page = settings.chunked_prefill_size, settings.block_size
    if chunk is not None and page is not None and chunk % page:
        raise ScenarioError(
            "serve.chunked_prefill_size",
            f"{chunk:,} is no multiple of block_size {page} (--page-size), {name} refuses it (server_args.py): "
            f"set it to {max(1, chunk // page) * page:,}",
        )
    experts, ranks = expert_count(model), settings.tensor_parallel_size
    if settings.expert_parallel and experts and experts % ranks and version < UNEVEN_EXPERTS:
        fewer = next((size for size in range(ranks - 1, 0, -1) if experts % size == 0), 1)
        raise ScenarioError(
            "serve.expert_parallel",
            f"{ranks} ranks do not share {experts} experts evenly, {name} refuses it (layers/moe): "
            f"set tensor_parallel_size to {fewer}",
        )
