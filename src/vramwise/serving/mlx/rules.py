"""MLX's answers, by question."""

from __future__ import annotations

from vramwise.engines.mlx import RECORD
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.refusals import check_settings, scenario_notes
from vramwise.serving.common.rules import Rules, WeightRules
from vramwise.serving.common.storage import Storage
from vramwise.serving.mlx.weights import mlx_weights, own_storage


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.mlx.estimate import estimate  # with the KV cache, which loading does not need

    return estimate(scenario, model, source, gpu)


def _check(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[str, ...]:
    check_settings(scenario.serve, model)
    notes = list(scenario_notes(scenario, model))
    if gpu is not None and gpu.vendor != RECORD.vendor:
        notes.append(f"MLX's memory is described for Apple silicon; {gpu.name} is none")
    return tuple(notes)


def _weights(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> Node:
    return mlx_weights(model, storage)


RULES = Rules(
    estimate=_estimate,
    check=_check,
    weights=WeightRules(storage=lambda model, settings, gpu: own_storage(model, settings), weights=_weights),
)
