"""Plain transformers' answers, by question."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.layouts import asked_storage
from vramwise.serving.common.rules import Rules, WeightRules, tensors_alone
from vramwise.serving.common.storage import Storage
from vramwise.serving.common.weight_nodes import with_buffers


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.transformers.server import estimate  # with its caches, which loading does not need

    return estimate(scenario, model, source, gpu)


def _storage(model: Model, settings: ServeSettings, gpu: Gpu | None) -> Storage:
    return asked_storage(model, settings)


def _weights(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> Node:
    return with_buffers(tensors_alone(model, settings, storage, gpu), model, storage)


RULES = Rules(estimate=_estimate, weights=WeightRules(storage=_storage, weights=_weights))
