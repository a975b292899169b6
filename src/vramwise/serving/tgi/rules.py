"""text-generation-inference's answers, by question."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.serving.common.advice import Again
from vramwise.serving.common.refusals import check_server
from vramwise.serving.common.rules import Rules, WeightRules


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.tgi.estimate import estimate  # with the KV cache, which loading does not need

    return estimate(scenario, model, source, gpu, again)


RULES = Rules(estimate=_estimate, check=check_server, weights=WeightRules())
