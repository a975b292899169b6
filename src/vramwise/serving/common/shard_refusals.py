"""Splits whose ranks would hold part of a block or a group of quantized weights, and the ways out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.heads import attention_heads, key_value_heads, shares_evenly
from vramwise.serving.common.layouts import capability_of, engine_layout, expert_ranks
from vramwise.serving.common.shard_rules import REFINED_BLOCKS, Case, Problem, quantized, refined_block, uneven
from vramwise.serving.common.shards import Shard, shards_of
from vramwise.serving.common.storage import Storage, own_method
from vramwise.serving.common.versions import Version, at_version, shown_version, version_of

_BEFORE_REFINED = (0, 28)


def check_shards(settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None, name: str) -> None:
    """Raise ScenarioError where a rank's share of a layer is none that the engine takes.

    A format that was asked for over a model that is not quantized stands for somebody's checkpoint of it, which may be
    padded (Qwen's 72B in AWQ has 29,696 columns where the model has 29,568): `shard_notes` warns of it.
    """
    version = version_of(settings.engine_version)
    problem = first_problem(settings, model, storage, gpu, version)
    if problem is None or not problem.refused or (problem.of_format and not own_method(model, storage)):
        return
    key = "tensor_parallel_size" if settings.tensor_parallel_size > 1 else "data_parallel_size"
    ways = ways_out(settings, model, storage, gpu, problem)
    what = f"{getattr(settings, key)}: {problem.what}, {at_version(name, version)} refuses it ({problem.rule})"
    raise ScenarioError(f"serve.{key}", what + (f": {ways}" if ways else ""))


def first_problem(
    settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None, version: Version
) -> Problem | None:  # fmt: skip
    """The first shard that the engine does not take at this version."""
    case = Case(
        settings.engine, version, settings.tensor_parallel_size, expert_ranks(settings, settings.engine), storage.dtype,
        capability_of(gpu), own_method(model, storage), model.config.model_type,
    )  # fmt: skip
    for shard in _shards(settings, model):
        if _is_whole(shard, settings):
            continue
        problem = uneven(shard, case)
        rule = storage.rule_for(shard.parameter) if problem is None else None
        if rule is not None and settings.engine in ("vllm", "sglang"):
            problem = quantized(shard, rule, case)
        if problem is not None:
            return problem
    return None


def _is_whole(shard: Shard, settings: ServeSettings) -> bool:
    """Shared experts are not cut where vLLM's ranks share out the tokens (config/parallel.py use_sequence_parallel_moe:
    expert parallelism over tensor and data ranks)."""
    shares_tokens = settings.expert_parallel and settings.tensor_parallel_size > 1 and settings.data_parallel_size > 1
    return shares_tokens and settings.engine == "vllm" and "shared_expert" in shard.parameter.name


def _shards(settings: ServeSettings, model: Model) -> tuple[Shard, ...]:
    layout = replace(engine_layout(settings, settings.engine), pipeline_parallel=1)
    return shards_of(model, layout)


def ways_out(
    settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None, problem: Problem
) -> str:  # fmt: skip
    """`set expert_parallel, or tensor_parallel_size to 4`: what the engine takes of these."""
    version = version_of(settings.engine_version)

    def works(changed: ServeSettings) -> bool:
        return first_problem(changed, model, storage, gpu, version) is None

    ways = []
    if problem.of_experts and not settings.expert_parallel and works(settings.replace(expert_parallel=True)):
        flag = "--enable-expert-parallel" if settings.engine == "vllm" else "--ep-size"
        ways.append(f"expert_parallel (--expert-parallel; {flag})")
    fewer = _fewer(settings.tensor_parallel_size, model)
    smaller = next((ranks for ranks in fewer if works(settings.replace(tensor_parallel_size=ranks))), None)
    if smaller is not None:
        ways.append(f"tensor_parallel_size to {smaller}")
    return f"set {', or '.join(ways)}" if ways else ""


def _fewer(ranks: int, model: Model) -> Iterator[int]:
    """Smaller numbers of ranks, the largest first, that the number of heads allows."""
    heads, kv_heads = attention_heads(model), key_value_heads(model)
    for size in range(ranks - 1, 0, -1):
        if heads % size == 0 and shares_evenly(kv_heads, size):
            yield size


def shard_notes(settings: ServeSettings, model: Model, storage: Storage, gpu: Gpu | None, name: str) -> Iterator[str]:
    """What runs in some versions alone, and what a checkpoint must bring that the model's config does not tell."""
    version = version_of(settings.engine_version)
    problem = first_problem(settings, model, storage, gpu, version)
    if problem is not None:
        ways = ways_out(settings, model, storage, gpu, problem)
        own = bool(own_method(model, storage))
        does = (
            f"refuses it ({problem.rule})" if problem.refused else "does not ask, and takes the scales of other groups"
        )
        unless = "" if own else " unless the checkpoint is padded to it"
        yield f"{problem.what}: {name} {does}{unless}{f'; else {ways}' if ways else ''}"
        return
    if settings.engine != "vllm" or version < REFINED_BLOCKS:
        return
    older = settings.replace(engine_version=shown_version(_BEFORE_REFINED))
    problem = first_problem(older, model, storage, gpu, _BEFORE_REFINED)
    if problem is None or not problem.of_experts:
        return
    ways = ways_out(older, model, storage, gpu, problem)
    yield (
        f"{problem.what}: vLLM up to 0.28 refuses it, 0.29 and later cut the blocks smaller "
        f"({_refined(settings, model, storage)}); {ways} for both"
    )


def _refined(settings: ServeSettings, model: Model, storage: Storage) -> str:
    sizes = {refined_block(shard, storage.rule_for(shard.parameter)) for shard in _shards(settings, model)}
    return ", ".join(str(size) for size in sorted(size for size in sizes if size))
