"""TensorRT-LLM's answers, by question."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.serving.common.advice import Again
from vramwise.serving.common.refusals import check_server
from vramwise.serving.common.rules import Rules, WeightRules


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.tensorrt_llm.estimate import estimate  # with the KV cache, which loading does not need

    return estimate(scenario, model, source, gpu, again)


def _check(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    return check_server(scenario, model, gpu, asks_of_shards=False)


RULES = Rules(estimate=_estimate, check=_check, weights=WeightRules())
