"""`estimate(scenario) -> Result`: finds the model and the GPU, and asks the part that answers the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .errors import ScenarioError
from .hardware import Gpu, find_gpu
from .models import Model, describe
from .result import Result
from .scenario import Scenario
from .sources import ModelSource, resolve

_REMEMBERED_MODELS = 256
_models: dict[int, tuple[ModelSource, Model]] = {}


def estimate(scenario: Scenario | Mapping[str, Any]) -> Result:
    """The memory that a scenario takes: quantities, moments with their trees, verdict.

    `scenario` is a `Scenario` or the same as a table. Raises ScenarioError (a wrong key or value), UnknownNameError
    (an unknown GPU), SourceError (a model that cannot be found or read) and UnsupportedModelError (a family that is
    not described). Nothing is downloaded and neither torch nor transformers is imported.
    """
    if not isinstance(scenario, Scenario):
        scenario = Scenario.from_dict(scenario)
    found, model = described_model(scenario.model)
    gpu, gpu_note = _gpu(scenario)
    result = _answer(scenario, model, found.origin, gpu)
    notes = [note for note in (found.note, gpu_note, *scenario.notes) if note]
    return replace(result, notes=(*notes, *result.notes)) if notes else result


def described_model(name: str | Mapping[str, Any]) -> tuple[ModelSource, Model]:
    """A model's source and its description; the answer for a source that was seen before is kept."""
    found = resolve(name)
    known = _models.get(id(found.config))
    if known is not None and known[0].config is found.config and known[0].id == found.id:
        return found, known[1]
    model = describe(found.config, found.id)
    if len(_models) >= _REMEMBERED_MODELS:
        _models.clear()
    _models[id(found.config)] = found, model
    return found, model


def _gpu(scenario: Scenario) -> tuple[Gpu | None, str | None]:
    if scenario.gpu is None:
        return None, None
    match = find_gpu(scenario.gpu)
    return match.gpu, match.note


def _answer(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    if scenario.task == "train":
        from .training import estimate_training

        return estimate_training(scenario, model, source, gpu)
    if scenario.task != "load" and "hidden" not in model.blocks[-1].inputs:
        raise ScenarioError("task", f"{model.id} ({model.family}) takes no text: expected load or train")
    from .serving import estimate_generate, estimate_load, estimate_serving

    answers = {"serve": estimate_serving, "generate": estimate_generate, "load": estimate_load}
    return answers[scenario.task](scenario, model, source, gpu)
