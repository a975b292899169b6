"""llama.cpp's and ollama's answers: weights, caches and buffers hang together, so that one answer tells them all."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.serving.common.advice import Again
from vramwise.serving.common.rules import Rules
from vramwise.serving.llama_cpp.estimate import estimate


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    return estimate(scenario, model, source, gpu)  # it searches plans, not scenarios


RULES = Rules(estimate=_estimate)
