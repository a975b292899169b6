"""How a training may lie over several GPUs: data, tensor, pipeline, context and expert parallelism, ZeRO or FSDP.

What divides nothing is refused by the estimate itself, so that no rule stands here twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.scenario import Scenario

Values = Mapping[str, object]

_TENSOR = (1, 2, 4, 8)
_PIPELINE = (1, 2, 4, 8, 16, 32)
"""Beside tensor parallelism over a whole node further stages too, in which layers lie evenly, up to one layer in each:
pipelines are for what nodes do not hold (arXiv 2104.04473 section 5.4; its runs have 35 and 64 stages)."""
_CONTEXT = (1, 2, 4, 8)
_EXPERT = (1, 2, 4, 8, 16, 32, 64)
_LONG = 16_384
"""Tokens of a sequence from which a layout may cut it."""
_IN_FLIGHT = 4  # micro-batches for each stage: with fewer the bubble is over a fifth of the step


def layouts(scenario: Scenario, model: Model, num_gpus: int) -> Iterator[Values]:
    """Values of keys for every layout over this many GPUs that the framework's recipes offer, the plainest first."""
    train, framework = scenario.train, framework_of(scenario.train)
    sharding, whole = framework.sharding, {"fsdp": "none"} if framework.shards_by_itself else {}
    if num_gpus == 1:
        yield {}
        return
    for tensor, pipeline, context, expert in _cuts(scenario, model, num_gpus):
        cut: dict[str, object] = {}
        if tensor > 1:
            cut |= {"tensor_parallel_size": tensor, "sequence_parallel": True}
        if pipeline > 1:
            cut |= {"pipeline_parallel_size": pipeline, "num_microbatches": _IN_FLIGHT * pipeline}
        if context > 1:
            cut["context_parallel_size"] = context
        if expert > 1:
            cut["expert_parallel_size"] = expert
        for shared in _shared(sharding.shares, whole, takes_zero=sharding.takes_zero or train.zero_stage > 0):
            yield {**cut, **shared}


def _cuts(scenario: Scenario, model: Model, num_gpus: int) -> Iterator[tuple[int, int, int, int]]:
    """Tensor, pipeline, context and expert sizes whose product divides the GPUs, the smallest first."""
    offered = framework_of(scenario.train).sharding.cuts
    length = scenario.train.sequence_length or 0
    sizes = (
        [n for n in _TENSOR if n <= scenario.gpus_per_node] if "tensor" in offered else [1],
        _stages(model.num_layers) if "pipeline" in offered else [1],
        list(_CONTEXT) if "context" in offered and length >= _LONG else [1],
        list(_EXPERT) if "expert" in offered and model.has_experts else [1],
    )
    found = (
        cut for cut in product(*sizes)
        if num_gpus % (cut[0] * cut[1] * cut[2]) == 0 and num_gpus // (cut[0] * cut[1]) % cut[3] == 0
        and (cut[1] in _PIPELINE or cut[0] == min(_TENSOR[-1], scenario.gpus_per_node))
    )  # fmt: skip
    yield from sorted(found, key=lambda cut: (cut[0] * cut[1] * cut[2] * cut[3], cut))


def _stages(num_layers: int) -> list[int]:
    """Stages of a pipeline: powers of two, and what divides the layers."""
    return [n for n in range(1, max(1, num_layers) + 1) if n in _PIPELINE or num_layers % n == 0]


def _shared(shares: str, whole: Values, *, takes_zero: bool) -> list[Values]:
    """How the states may lie over data-parallel ranks; `whole`: on each."""
    if shares == "tensors":
        return [{"distributed_optimizer": True}]
    if shares == "nothing":
        return [{}]
    if shares == "zero" or takes_zero:
        return [{"zero_stage": stage} for stage in (1, 2, 3)]
    return [{"fsdp": "full-shard"}, {"fsdp": "shard-grad-op"}, whole]
