"""vLLM's answers, by question."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.layouts import capability_of, gfx_of
from vramwise.serving.common.rules import Rules, ShareParts, WeightRules
from vramwise.serving.common.storage import Storage
from vramwise.serving.vllm.dtypes import vllm_storage
from vramwise.serving.vllm.profile import HEADROOM_VERSION, release
from vramwise.serving.vllm.refusals import check
from vramwise.serving.vllm.settings import version_and_profile
from vramwise.serving.vllm.weights import vllm_weights


def _estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    from vramwise.serving.vllm.estimate import estimate  # with the KV cache, which loading does not need

    return estimate(scenario, model, source, gpu, again)


def _needs(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[Quantity, str]:
    from vramwise.serving.vllm.estimate import needs

    return needs(scenario, model, gpu)


def _weights(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> Node:
    return vllm_weights(model, settings, storage, capability_of(gpu), gfx=gfx_of(gpu))


def _inside_the_budget(
    settings: ServeSettings, gpu: Gpu | None, quantities: Mapping[str, Quantity]
) -> frozenset[str]:  # fmt: skip
    """The terms that a version charges to its budget; graphs where it estimates them."""
    text, profile = version_and_profile(settings, gpu)
    inside = {"weights", "non-torch", "KV cache"}
    if release(text) >= HEADROOM_VERSION:
        inside.add("sampler state")
    if profile.counts_context:
        inside.add("CUDA context")
    if profile.graphs_in_budget and "cuda_graph_estimate" in quantities:
        inside.add("CUDA graphs")
    return frozenset(inside)


RULES = Rules(
    estimate=_estimate,
    check=check,
    needs=_needs,
    weights=WeightRules(storage=vllm_storage, weights=_weights),
    share=ShareParts(inside=_inside_the_budget, called={"weights": "model weights"}),
)
