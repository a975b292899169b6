"""Splits whose ranks would hold part of a block or a group of quantized weights, and the ways out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.formats.quantization_config import AS_NAMED
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.records import record
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.heads import attention_heads, key_value_heads, shares_evenly
from vramwise.serving.common.layouts import capability_of, engine_layout, expert_ranks
from vramwise.serving.common.shard_rules import Case, Problem, ShardRule, uneven
from vramwise.serving.common.shards import Shard, shards_of
from vramwise.serving.common.storage import Storage, own_method
from vramwise.serving.common.versions import Version, at_version, version_of
from vramwise.serving.common.weights import ONE_STAGE


@record
class ShardCheck:
    """What an engine asks of the shares of a model's layers: `rule` of quantized ones, evenness of all."""

    model: Model
    storage: Storage
    gpu: Gpu | None
    rule: ShardRule | None = None

    def check(self, settings: ServeSettings) -> None:
        """Raise ScenarioError where a rank's share of a layer is none that the engine takes.

        A format that was asked for over a model that is not quantized stands for somebody's checkpoint of it, which may
        be padded (Qwen's 72B in AWQ has 29,696 columns where the model has 29,568), and what only a name tells may have
        other groups: `notes` warn of it.
        """
        version = version_of(settings.engine_version)
        problem = self.first_problem(settings, version)
        if problem is None or not problem.refused or (problem.of_format and self._doubt()):
            return
        key = "tensor_parallel_size" if settings.tensor_parallel_size > 1 else "data_parallel_size"
        ways, title = self.ways_out(settings, problem), engine_named(settings.engine).title
        what = f"{getattr(settings, key)}: {problem.what}, {at_version(title, version)} refuses it ({problem.rule})"
        raise ScenarioError(f"serve.{key}", what + (f": {ways}" if ways else ""))

    def notes(self, settings: ServeSettings) -> Iterator[str]:
        """What the engine refuses of a checkpoint that is not padded, or does without asking."""
        problem = self.first_problem(settings, version_of(settings.engine_version))
        if problem is None:
            return
        ways = self.ways_out(settings, problem)
        does = (
            f"refuses it ({problem.rule})" if problem.refused else "does not ask, and takes the scales of other groups"
        )
        title = engine_named(settings.engine).title
        yield f"{problem.what}: {title} {does}{self._doubt()}{f'; else {ways}' if ways else ''}"

    def _doubt(self) -> str:
        """Why the checkpoint may be another than the format says; empty where its own config was read."""
        if not own_method(self.model, self.storage):
            return " unless the checkpoint is padded to it"
        table = self.model.config.get("quantization_config")
        if isinstance(table, Mapping) and table.get(AS_NAMED):
            return " unless its own config.json says other groups than its name"
        return ""

    def first_problem(self, settings: ServeSettings, version: Version) -> Problem | None:
        """The first shard that the engine does not take at this version."""
        case = Case(
            version, settings.tensor_parallel_size, expert_ranks(settings), self.storage.dtype,
            capability_of(self.gpu), own_method(self.model, self.storage), self.model.config.model_type,
        )  # fmt: skip
        for shard in self.shards(settings):
            if _is_whole(shard, settings):
                continue
            problem = uneven(shard, case)
            format = self.storage.rule_for(shard.parameter) if problem is None else None
            if format is not None and self.rule is not None:
                problem = self.rule(shard, format, case)
            if problem is not None:
                return problem
        return None

    def shards(self, settings: ServeSettings) -> tuple[Shard, ...]:
        """What one rank holds of every layer."""
        return shards_of(self.model, replace(engine_layout(settings), stages=ONE_STAGE, host_bytes=0))

    def ways_out(self, settings: ServeSettings, problem: Problem) -> str:
        """`set expert_parallel, or tensor_parallel_size to 4`: what the engine takes of these."""
        version, flag = version_of(settings.engine_version), engine_named(settings.engine).expert_flag

        def works(changed: ServeSettings) -> bool:
            return self.first_problem(changed, version) is None

        ways = []
        whole = problem.of_experts and flag and not settings.expert_parallel
        if whole and works(settings.replace(expert_parallel=True)):
            ways.append(f"expert_parallel (--expert-parallel; {flag})")
        fewer = _fewer(settings.tensor_parallel_size, self.model)
        smaller = next((ranks for ranks in fewer if works(settings.replace(tensor_parallel_size=ranks))), None)
        if smaller is not None:
            ways.append(f"tensor_parallel_size to {smaller}")
        return f"set {', or '.join(ways)}" if ways else ""


def _is_whole(shard: Shard, settings: ServeSettings) -> bool:
    """Whether it is a shared expert where ranks share out the tokens: whole experts over tensor and data ranks."""
    shares_tokens = settings.expert_parallel and settings.tensor_parallel_size > 1 and settings.data_parallel_size > 1
    return (
        shares_tokens
        and engine_named(settings.engine).shared_experts_stay_whole
        and "shared_expert" in shard.parameter.name
    )


def _fewer(ranks: int, model: Model) -> Iterator[int]:
    """Smaller numbers of ranks, the largest first, that the number of heads allows."""
    heads, kv_heads = attention_heads(model), key_value_heads(model)
    for size in range(ranks - 1, 0, -1):
        if heads % size == 0 and shares_evenly(kv_heads, size):
            yield size
