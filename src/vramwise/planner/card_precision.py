"""Trainings in fp16 on cards that do not compute in bf16, where nobody stated a precision.

What is left open is taken in bf16, as people train today. On a card without it (Volta, Turing) that is fp16, and no
relabelling: torch's scaler refuses fp16 gradients of weights that train (torch 2.13 amp/grad_scaler.py
`_unscale_grads_`: "Attempting to unscale FP16 gradients."), so that those stay in fp32 under autocast. Frozen weights
below adapters are loaded in fp16.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.planner.changes import changed
from vramwise.scenario import Scenario
from vramwise.training.recipe.framework_defaults import ADAPTERS
from vramwise.training_parts import as_resolved

_IN_FP16: Mapping[str, str] = {"bf16-mixed": "fp16-mixed", "bf16": "fp16-mixed", "bf16-master": "fp16-master"}
_STATED = frozenset({"precision", "param_dtype", "compute_dtype"})


def for_the_card(scenario: Scenario) -> Scenario:
    """The scenario with a precision that its cards compute in stated, where it stated none and they have no bf16."""
    values = precision_of_the_card(scenario)
    return changed(scenario, values) if values else scenario


def precision_of_the_card(scenario: Scenario) -> Mapping[str, object]:
    """The settings that say so; empty where bf16 is right, and where the framework has no other."""
    if scenario.task != "train" or _STATED & scenario.train.explicit or not without_bf16(scenario):
        return {}
    try:
        train = as_resolved(scenario)
        precision = _IN_FP16.get(train.precision)
        if precision is None:
            return {}
        adapts = train.method in ADAPTERS and precision.endswith("-mixed")
        values = {"precision": precision, **({"param_dtype": "fp16"} if adapts else {})}
        as_resolved(changed(scenario, values))
    except VramwiseError:
        return {}
    return values


def without_bf16(scenario: Scenario) -> str:
    """The name of a card of the scenario that does not compute in bf16; empty where all do."""
    return next(filter(None, map(_without, scenario.gpus or (scenario.gpu or "",))), "")


@cache
def _without(card: str) -> str:
    try:
        gpu = find_gpu(card).gpu if card else None
    except VramwiseError:
        return ""
    return gpu.name if gpu is not None and gpu.supports("bf16") is False else ""
