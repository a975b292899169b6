"""`estimate(scenario) -> Result`: finds the model and the GPU, and asks the part that answers the task."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

from vramwise.errors import ScenarioError, SourceError, UndescribedTypeError
from vramwise.hardware.room import beside_others, card_of, device_notes, room_of
from vramwise.models import Model, describe
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.cards import card_here
from vramwise.scenario.names import LIBRARIES
from vramwise.site import THE_USERS, Asked, asking, site_in_use, using
from vramwise.sources import ModelSource, resolve

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.points.needs import ManyNeeds
    from vramwise.serving.tensors import KnownTensors
    from vramwise.site.run import Site

AUTO = LIBRARIES[0]
_REMEMBERED_MODELS = 256
_ONE_BY_ONE = 16
_models: dict[int, tuple[ModelSource, Model]] = {}


def estimate(
    scenario: Scenario | Mapping[str, object] | str, *, replays: bool = True, limits: bool = True,
    site: str | os.PathLike[str] | Site | None = THE_USERS, **settings: object,
) -> Result:  # fmt: skip
    """The memory that a scenario takes: quantities, moments with their trees, verdict.

    `scenario` is a `Scenario`, the same as a table, or a model with the scenario's keys as keywords, flat as the flags
    are: `estimate("llama-3.1-8b", task="serve", gpu="l40s", max_model_len=8192)`.

    Raises ScenarioError (a wrong key or value), UnknownNameError (an unknown GPU), SourceError (a model that cannot be
    found or read) and UnsupportedModelError (a family that is not described). A model that neither the catalog nor a
    cache on disk has is read from its hub, its config and the headers of its files alone; HF_HUB_OFFLINE forbids that.
    A type that no family describes is answered as far as its tensors say: from the headers of its safetensors files,
    else from transformers' own class where that is installed, the only case in which torch is imported; the result's
    notes say so.

    `replays`: whether a training step may be replayed on a model of torch's allocator, which takes 10 to
    100 ms once reserved memory is read; else that is a calibrated ratio. `limits`: whether a training's answer has
    `max_batch` and `max_seq`, which are searched for when they are read, by ten replays and more. `site`: the file of
    what runs on one's own machines showed (`vramwise calibrate`); by default the user's own, where there is one, and
    None for none. What it changed stands in the result's `site` and its notes.
    """
    if isinstance(scenario, str):
        from vramwise.scenario.keywords import scenario_of

        scenario = scenario_of(scenario, settings)
    elif settings:
        raise ScenarioError(next(iter(settings)), "keywords go with a model's name: write them into the scenario")
    elif not isinstance(scenario, Scenario):
        scenario = Scenario.from_dict(scenario)
    scenario = on_this_machine(scenario)
    with using(site_in_use(site), scenario.driver) as force:
        result = _estimate(scenario, replays=replays, limits=limits)
    if force is None:
        return result
    changed = tuple(one.to_dict() for one in force.found.values())
    return replace(result, site=changed, notes=(*force.notes(), *result.notes))


def on_this_machine(scenario: Scenario) -> Scenario:
    """The scenario with this machine's card where it asks for that (`gpu: here`). Raises ScenarioError without one."""
    if card_here(scenario.gpu) is None:
        return scenario
    from vramwise.hardware.machine.here import located

    return located(scenario)


def terms_asked(scenario: Scenario) -> tuple[Result, Mapping[str, Asked]]:
    """The estimate without any site, and the terms that one could have said: those that a run can teach."""
    with asking() as force:
        result = _estimate(scenario, replays=True)
        dict(result.quantities)  # those that are worked out when they are read ask too
    return result, dict(force.asked)


def _estimate(scenario: Scenario, *, replays: bool, limits: bool = True) -> Result:
    gpu, gpu_note = card_of(scenario)
    if scenario.driver is not None:
        from vramwise.hardware.drivers import check_driver

        check_driver(scenario.driver, gpu)
    said: tuple[str, ...] = ()
    try:
        found, model = model_of(scenario)
    except UndescribedTypeError as problem:
        found = _source_of(scenario)
        result = _undescribed(scenario, found, gpu, problem)
    else:
        scenario, said = as_found(scenario, found)
        result = _answer(scenario, model, found.origin, gpu, replays=replays, limits=limits)
        said = (*said, *model.file_notes)
    result = beside_others(result, room_of(scenario, gpu))
    notes = [note for note in (found.note, *said, gpu_note, *device_notes(scenario, gpu), *scenario.notes) if note]
    return replace(result, notes=(*notes, *result.notes), suggestions=Suggestions(scenario, result))


class Suggestions(Sequence[Mapping[str, Any]]):
    """What to change so that less is needed, worked out once somebody reads it: that takes up to twelve estimates.

    Each is a table of `change`, `command`, `total_needed`, `saves_bytes`, `fits` and `cost`, best first.
    """

    def __init__(self, scenario: Scenario, result: Result | None = None) -> None:
        self._scenario, self._result = scenario, result
        self._found: tuple[Mapping[str, Any], ...] | None = None

    def _all(self) -> tuple[Mapping[str, object], ...]:
        if self._found is None:
            from vramwise import suggestion_tables  # by the package's own list of names: it is made far above

            self._found, self._result = tuple(suggestion_tables(self._scenario, self._result)), None
        return self._found

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Mapping[str, Any], ...]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | tuple[Mapping[str, Any], ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return repr(list(self._all()))

    def __reduce__(self) -> tuple[object, ...]:
        return (Suggestions, (self._scenario,)) if self._found is None else (tuple, (self._found,))


def needs_together(
    scenario: Scenario, micro_batch_sizes: Sequence[int] | None, sequence_lengths: Sequence[int] | None, *,
    ends: bool = False, site: str | os.PathLike[str] | Site | None = THE_USERS,
) -> ManyNeeds | None:  # fmt: skip
    """What a training needs with each micro-batch of a sequence length, one of each column, all at once.

    Without a column the scenario's own size stands; `ends`: also how much it may be. The numbers are those of
    `estimate(..., replays=False)`. None where the scenario has no such answer: of a model whose tensors alone are
    known, beside a rollout engine, on a card of which some must stay free.
    """
    from vramwise.points.expression import ManyNumbers
    from vramwise.training.many import needs_of_many

    scenario = on_this_machine(scenario)
    with using(site_in_use(site), scenario.driver):
        gpu, _ = card_of(scenario)
        try:
            found, model = model_of(scenario)
            scenario, _ = as_found(scenario, found)
            return needs_of_many(scenario, model, gpu, micro_batch_sizes, sequence_lengths, ends=ends)
        except (UndescribedTypeError, ManyNumbers):
            return None


def fits_at_no_size(scenario: Scenario, *, site: str | os.PathLike[str] | Site | None = THE_USERS) -> bool:
    """Whether a training's states alone, without what hangs on its micro-batch and its length, are more than its card
    holds: known without a look at its layers. Raises what `estimate` raises of its settings."""
    from vramwise.training.many import fits_at_no_size as answer

    scenario = on_this_machine(scenario)
    with using(site_in_use(site), scenario.driver):
        gpu, _ = card_of(scenario)
        try:
            found, model = model_of(scenario)
        except UndescribedTypeError:
            return False
        scenario, _ = as_found(scenario, found)
        return answer(scenario, model, gpu)


def needs_of_lengths(
    scenario: Scenario, lengths: Sequence[int], *, site: str | os.PathLike[str] | Site | None = THE_USERS
) -> ManyNeeds | None:  # fmt: skip
    """What a server needs with each `max_model_len`, all at once, with the numbers of `estimate`; None where its engine
    or its card has no such answer."""
    from vramwise.points.expression import ManyNumbers
    from vramwise.serving.many import needs_of_lengths as answer

    scenario = on_this_machine(scenario)
    with using(site_in_use(site), scenario.driver):
        gpu, _ = card_of(scenario)
        try:
            found, model = model_of(scenario)
            if found.adapter is not None or not model.ends_in_text:
                return None
            scenario, _ = as_found(scenario, found)
            return answer(scenario, model, gpu, lengths)
        except (UndescribedTypeError, ManyNumbers):
            return None


def as_found(scenario: Scenario, found: ModelSource) -> tuple[Scenario, tuple[str, ...]]:
    """The scenario with what its model's name says beside the model: an adapter, the type of GGUF files; notes."""
    adapter, quant = found.adapter, found.gguf_quant
    if adapter is None and quant is None:
        return scenario, ()
    from vramwise.scenario.adapted import with_adapter, with_file_type

    if quant is not None:
        return with_file_type(scenario, quant)
    assert adapter is not None
    return with_adapter(scenario, adapter.name, adapter.as_training(), adapter.rank, adapter.stored_bytes)


def model_of(scenario: Scenario) -> tuple[ModelSource, Model]:
    """The scenario's model, from where its `source` and `revision` say.

    Raises UndescribedTypeError too where `library` names one whose models are not described.
    """
    found = _source_of(scenario)
    if scenario.library != AUTO:
        from vramwise.sources.libraries import library_of

        library = library_of(found.config, scenario.library)
        if not library.has_types:
            raise UndescribedTypeError(found.id, library.called, None)
    return _described(found)


def _source_of(scenario: Scenario) -> ModelSource:
    found = resolve(scenario.model, source=scenario.source, revision=scenario.revision)
    if not scenario.hf_overrides:
        return found
    from vramwise.sources.overrides import with_overrides

    return with_overrides(found, scenario.hf_overrides)


def _as_in_files(found: ModelSource, model: Model) -> Model:
    """The model with what the headers of its files say otherwise, on this machine or on a hub, where a commit's are
    read once and kept. Headers that cannot be read are said and hold up no answer."""
    if found.repository is None:
        return model
    if sys.platform == "emscripten":  # where they are asked for one after another
        count = sum(name.endswith(".safetensors") for name in found.repository.files())
        if count > _ONE_BY_ONE:
            return replace(model, file_notes=(f"headers of {count} files are not compared in a browser",))
    try:
        files = found.stored_weights()
    except SourceError as problem:
        return replace(model, file_notes=(f"headers of the files are not compared: {problem}",))
    if files is None or "_class_name" in found.config:
        return model
    from vramwise.serving.checked_files import as_in_files

    return as_in_files(model, files)


def described_model(
    name: str | Mapping[str, object], *, source: str = "auto", revision: str | None = None
) -> tuple[ModelSource, Model]:
    """A model's source and its description; the answer for a source that was seen before is kept."""
    return _described(resolve(name, source=source, revision=revision))


def _described(found: ModelSource) -> tuple[ModelSource, Model]:
    known = _models.get(id(found.config))
    if known is not None and known[0].config is found.config and known[0].id == found.id:
        return found, known[1]
    model = _as_in_files(found, describe(found.config, found.id))
    remember_model(found, model)
    return found, model


def remember_model(found: ModelSource, model: Model) -> None:
    """Keep the description of a source for whoever asks next."""
    if len(_models) >= _REMEMBERED_MODELS:
        _models.clear()
    _models[id(found.config)] = found, model


def _undescribed(scenario: Scenario, found: ModelSource, gpu: Gpu | None, problem: UndescribedTypeError) -> Result:
    """What the tensors alone say of a type that no family describes. Raises `problem` when they are not known.

    A pipeline of Diffusers has its components' configs, which tell what it holds at each moment.
    """
    of_diffusers, made = "_class_name" in found.config, scenario.task in ("generate", "load")
    if of_diffusers and made:
        answer = _pipeline(scenario, found, gpu)
        if answer is not None:
            return answer
    from vramwise.serving.tensors import known_tensors

    known = known_tensors(found, scenario.library)
    if known is None and of_diffusers and not made:
        what = "its training is not described; " if scenario.task == "train" else ""
        raise ScenarioError("task", f"{found.id} is made by Diffusers: {what}expected generate or load")
    if known is None:
        raise problem
    if scenario.task == "train":
        from vramwise.training.stored import estimate_stored_training

        return estimate_stored_training(scenario, known.model, known.source, gpu, known.unknown)
    from vramwise.serving.stored import estimate_stored

    return estimate_stored(scenario, known, gpu)


def pipeline_parts(found: ModelSource) -> dict[str, dict[str, object]]:
    """Configs of the components that a pipeline of Diffusers names; empty for anything else."""
    from vramwise.sources.pipelines import component_configs

    return component_configs(found.config, found.repository)


def pipeline_tensors(found: ModelSource) -> KnownTensors | None:
    """The tensors of a described pipeline whose files are not here; None for anything else."""
    from vramwise.models.tensors_only import model_of_tensors
    from vramwise.serving.diffusers.tensors import files_of_components
    from vramwise.serving.tensors import KnownTensors
    from vramwise.sources.libraries import library_of

    files = files_of_components(found.config, pipeline_parts(found), found.id)
    if files is None:
        return None
    model = model_of_tensors(found.config, found.id, [(tensor.name, tensor.shape) for tensor in files.tensors])
    return KnownTensors(model, library_of(found.config), "the configs of its components", files, "")


def _pipeline(scenario: Scenario, found: ModelSource, gpu: Gpu | None) -> Result | None:
    """The answer for a pipeline of Diffusers or one of its denoisers; None where neither is described, or where headers
    of files answer `load`."""
    from vramwise.serving.diffusers.generate import estimate_pipeline

    if scenario.task == "load" and found.repository is not None:
        return None
    try:
        return estimate_pipeline(scenario, found.config, pipeline_parts(found), found.id, found.origin, gpu)
    except UndescribedTypeError:
        return None


def _answer(
    scenario: Scenario, model: Model, source: str, gpu: Gpu | None, *, replays: bool, limits: bool
) -> Result:  # fmt: skip
    if scenario.task == "train":
        from vramwise.training import estimate_training

        return estimate_training(scenario, model, source, gpu, replays=replays, limits=limits)
    if scenario.task != "load" and not model.ends_in_text:
        raise ScenarioError("task", f"{model.id} ({model.family}) takes no text: expected load or train")
    from vramwise.serving import estimate_generate, estimate_load, estimate_serving

    answers = {"serve": estimate_serving, "generate": estimate_generate, "load": estimate_load}
    return answers[scenario.task](scenario, model, source, gpu)
