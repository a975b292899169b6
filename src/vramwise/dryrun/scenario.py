"""A scenario as jobs of the worker, and its answers as results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any, Final

from vramwise.dryrun.launch import answers_of
from vramwise.dryrun.outcome import context_node, result_of, workspace_bytes
from vramwise.dryrun.pipeline_job import pipeline_config
from vramwise.dryrun.whose import (
    PIPELINES,
    classifier_config,
    classifier_table,
    embedder_config,
    embedder_table,
    found_by,
    refuse_what_it_does_not_run,
    whose,
)
from vramwise.errors import UnsupportedModelError, UsageError
from vramwise.estimation import estimate
from vramwise.hardware import Gpu, find_gpu
from vramwise.hardware.room import Room, room_of
from vramwise.measure.job import Job
from vramwise.measure.supported import refuse_what_cannot_run
from vramwise.measure.types_here import refuse_type_unknown_here
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.names import CLASSIFIERS, EMBEDDERS
from vramwise.sources import ModelSource
from vramwise.units import GIB

STEPS: Final = 2
TIMEOUT_S: Final = 900.0
_ANY_CARD: Final = ("a card of compute capability 8.0", 80 * GIB, (8, 0))
_SHORT: Final = 2048


def dry_runs(
    scenarios: Sequence[Scenario], *, timeout_s: float = TIMEOUT_S, snapshot: str | None = None,
    flame: str | None = None,
) -> Iterator[tuple[Result, Result | None]]:  # fmt: skip
    """The result of each scenario's dry run, and its estimate where the family is described.

    Raises UsageError for what a dry run does not run, and VramwiseError where the run fails.
    """
    asked = [_asked(scenario) for scenario in scenarios]
    questions = [question for question, *_ in asked]
    for question in questions:
        question |= {"snapshot": snapshot, "flame": flame}
    with closing(answers_of(questions, Job(**questions[0]["job"]), timeout_s)) as answers:
        for (question, gpu, room, estimated), found in zip(asked, answers, strict=True):
            job = question["job"]
            notes = [resolved_note] if (resolved_note := question["note"]) else []
            yield result_of(found, job["scenario"], job["model_id"], gpu, room, notes), estimated


def question_of(scenario: Scenario) -> dict[str, object]:
    """What a dry run's process is asked of a scenario. Raises UsageError for what a dry run does not run."""
    return _asked(scenario)[0]


def card_of(gpu: Gpu | None, total_bytes: int | None) -> dict[str, Any]:
    """What `torch.cuda` is to answer."""
    name, size, capability = _ANY_CARD
    if gpu is not None:
        name = f"NVIDIA {gpu.name}" if not gpu.name.startswith("NVIDIA") else gpu.name
        size = gpu.memory_total_bytes or size
        capability = _capability(gpu) or capability
    return {"name": name, "total_bytes": total_bytes or size, "capability": capability}


def _capability(gpu: Gpu) -> tuple[int, int] | None:
    major, dot, minor = gpu.compute_capability.partition(".")
    return (int(major), int(minor)) if dot and major.isdecimal() and minor.isdecimal() else None


def _asked(scenario: Scenario) -> tuple[dict[str, Any], Gpu | None, Room | None, Result | None]:
    gpu = find_gpu(scenario.gpu).gpu if scenario.gpu is not None else None
    room = room_of(scenario, gpu)
    found = found_by(scenario)
    library = whose(scenario, found)
    if library == EMBEDDERS:
        scenario = scenario.replace(library=EMBEDDERS).checked()
    try:
        estimated: Result | None = estimate(scenario) if library != CLASSIFIERS else None
    except UnsupportedModelError:
        estimated = None
    table, config = _described(scenario, found, library, estimated)
    job = Job(config, found.id, table, "cuda:0", STEPS)
    settings = job.settings
    question = {
        "job": asdict(job), "library": library, "card": card_of(gpu, scenario.gpu_total_bytes),
        "workspace_bytes": workspace_bytes(gpu),
        "expandable": bool(settings.get("expandable_segments")), "note": found.note,
        "room_bytes": None if room is None else room.usable_bytes - context_node(gpu).bytes,
    }  # fmt: skip
    return question, gpu, room, estimated


def _described(
    scenario: Scenario, found: ModelSource, library: str, estimated: Result | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The table and the config that a run is given. Raises UsageError for what it does not run."""
    if library in (CLASSIFIERS, EMBEDDERS):
        refuse_what_it_does_not_run(scenario, library)
    if library == CLASSIFIERS:
        table, config = classifier_table(scenario), classifier_config(found)
        _refuse_what_cannot_run(table)
        return table, config
    if library == PIPELINES:
        table = dict(estimated.scenario if estimated is not None else scenario.to_dict())
        _refuse_several_cards(table)
        return table, pipeline_config(found, table)
    table = dict(estimated.scenario) if estimated is not None else _with_sizes(scenario)
    if library == EMBEDDERS:
        table = embedder_table(table)
    _refuse_what_cannot_run(table)
    if "model_type" not in found.config:
        raise UsageError(
            f"dry-run makes classes of transformers by name, and {found.id} is none: run code of yours that makes it "
            "(dry-run -- python FILE.py), or ask vramwise estimate"
        )
    refuse_type_unknown_here(str(found.config["model_type"]))
    return table, embedder_config(found, scenario) if library == EMBEDDERS else found.config


def _refuse_what_cannot_run(table: dict[str, object]) -> None:
    _refuse_what_has_no_fake(table)
    refuse_what_cannot_run(table, "cuda", command="dry-run")


def _with_sizes(scenario: Scenario) -> dict[str, object]:
    """A scenario that no family resolves, with the sizes that a run cannot do without."""
    table: dict[str, Any] = dict(scenario.to_dict())
    own: dict[str, Any] = dict(table.get(scenario.task) or {})
    if scenario.task == "train":
        own.setdefault("sequence_length", _SHORT)
        own.setdefault("micro_batch_size", 1)
    elif scenario.task == "generate":
        own = {"batch_size": 1, "prompt_tokens": _SHORT, "new_tokens": 1} | own
    return table | {scenario.task: own}


def settings_of_module(scenario: Scenario, inputs: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """What of a scenario a module of the user's own is trained by; its samples are the first input's first dimension.

    Raises UsageError for what has no fake.
    """
    table: dict[str, Any] = dict(scenario.to_dict())
    own = dict(table.get(scenario.task) or {})
    if scenario.task == "train":
        samples = next((one["shape"][0] for one in inputs if one["shape"]), 1)
        usual = {"precision": "bf16-mixed", "optimizer": "adamw", "clip_grad_norm": True}
        own = usual | own | {"framework": "pytorch", "micro_batch_size": samples}
    table[scenario.task] = own
    _refuse_what_cannot_run(table)
    return own if scenario.task != "generate" else {"precision": own.get("dtype", "fp32")} | own


def _refuse_what_has_no_fake(table: dict[str, Any]) -> None:
    settings = table.get(str(table["task"])) or {}
    _refuse_several_cards(table)
    if settings.get("quantization") or "8bit" in str(settings.get("optimizer")) or settings.get("optimizer") == "lion":
        raise UsageError("dry-run has no fake of bitsandbytes' kernels: leave out quantization and its optimizers")
    if settings.get("compile"):
        raise UsageError("dry-run runs eagerly and says nothing of torch.compile: leave out --compile")
    if settings.get("attention") in ("flash", "flex"):
        raise UsageError("dry-run has no fake of this attention's kernel: use --attention sdpa, which keeps the same")


def _refuse_several_cards(table: Mapping[str, Any]) -> None:
    if table.get("num_gpus", 1) > 1:
        raise UsageError("dry-run runs on one GPU: estimate answers for --num-gpus")
