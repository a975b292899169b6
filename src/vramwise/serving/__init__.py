"""Inference engines: how each sizes GPU memory, from weights to the KV cache pool.

The three functions import what they need when they are called, so that asking for weights alone stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.models import Model
    from vramwise.result import Result
    from vramwise.scenario import Scenario

__all__ = ["estimate_generate", "estimate_load", "estimate_serving"]


def estimate_load(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Bytes of the weights alone, as the engine of `scenario.serve` holds them.

    Raises ScenarioError for what that engine refuses. More: `vramwise.serving.load`.
    """
    from vramwise.serving.load import estimate_load as estimate

    return estimate(scenario, model, source, gpu, estimate_serving)


def estimate_generate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Peak of plain transformers `generate`."""
    from vramwise.serving.transformers.generate import estimate_generate as estimate

    return estimate(scenario, model, source, gpu)


def estimate_serving(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """Budget, KV cache pool and limits of the inference engine that `scenario.serve` names."""
    from dataclasses import replace

    from vramwise.serving.common.idle_experts import without_idle_experts
    from vramwise.serving.common.unchanged import unchanged
    from vramwise.serving.packages import rules_of

    model = without_idle_experts(model)

    def again(changed: Scenario) -> Result:
        return estimate_serving(changed, model, source, gpu)

    rules = rules_of(scenario.serve.engine)
    warnings = (*rules.check(scenario, model, gpu), *unchanged(scenario, model))
    estimate = rules.estimate(scenario, model, source, gpu, again)
    return replace(estimate, notes=(*estimate.notes, *warnings)) if warnings else estimate
