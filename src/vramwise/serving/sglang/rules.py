"""SGLang's answers, by question."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.rules import Rules, ShareParts, WeightRules
from vramwise.serving.common.storage import Storage
from vramwise.serving.sglang.refusals import check
from vramwise.serving.sglang.weights import sglang_weights


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.sglang.estimate import estimate  # with the KV cache, which loading does not need

    return estimate(scenario, model, source, gpu, again)


def _weights(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> Node:
    return sglang_weights(model, settings, storage)


def _inside_the_share(
    settings: ServeSettings, gpu: Gpu | None, quantities: Mapping[str, Quantity]
) -> frozenset[str]:  # fmt: skip
    return frozenset({"weights", "state pool", "pools of the requests", "KV cache"})


RULES = Rules(
    estimate=_estimate,
    check=check,
    weights=WeightRules(weights=_weights),
    share=ShareParts(inside=_inside_the_share, taken_first=("CUDA context", "outside torch"), of_free=True),
)
