"""Contradictions between keys of a task's table that need no model to be seen, and values that follow from others.

What becomes of a setting whose owner is not there: the one rule, for training and serving alike.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.records import record
from vramwise.scenario.inference import GenerateSettings, ServeSettings
from vramwise.scenario.nested import called
from vramwise.scenario.settings import Owner, Owners, Settings, ownership_of
from vramwise.scenario.training import TrainSettings

TaskSettings = TrainSettings | ServeSettings | GenerateSettings
TRAIN_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")
SERVE_SPLITS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


@record
class Checked:
    """A task's table with what follows from its keys filled in, the GPUs where they are known, and notes on both."""

    table: TaskSettings
    num_gpus: int | None
    notes: tuple[str, ...] = ()


def checked(table: TaskSettings, num_gpus: int | None, *, on_cpu: bool = False) -> Checked:
    """What a table and the number of GPUs (None: not given) come to; `on_cpu`: it can be without any.

    Raises ScenarioError for a contradiction.
    """
    if isinstance(table, TrainSettings):
        return _checked_train(table, num_gpus)
    if isinstance(table, ServeSettings):
        return _checked_serve(table, num_gpus, on_cpu=on_cpu)
    _check_some_gpu(num_gpus)
    return Checked(table, num_gpus)


def _checked_train(train: TrainSettings, num_gpus: int | None) -> Checked:
    _check_method(train)
    _check_sharding(train)
    _check_amounts(train)
    train, notes = _with_quantization(_with_rollout(_with_schedule(train)))
    notes = (*check_owners(train, "train"), *notes)
    _check_some_gpu(num_gpus)
    return _split(Checked(train, num_gpus, notes), "train", TRAIN_SPLITS)


def _check_amounts(train: TrainSettings) -> None:
    if train.gradient_release and train.gradient_accumulation_steps > 1:
        steps = train.gradient_accumulation_steps
        raise ScenarioError(
            "train.gradient_release",
            f"steps after every backward pass; gradient_accumulation_steps is {steps}: set it to 1, or release off",
        )
    for name in ("moe_overload_factor", "moe_capacity_factor"):
        factor = getattr(train, name)
        if factor is not None and factor < 1:
            raise ScenarioError(f"train.{name}", f"expected a number of at least 1 (an even share), got {factor:g}")


def _check_method(train: TrainSettings) -> None:
    if train.method == "full" and train.quantization is not None:
        raise ScenarioError(
            "train.quantization",
            f"{train.quantization} weights do not train themselves: method qlora trains adapters on them",
        )


def _check_sharding(train: TrainSettings) -> None:
    if train.fsdp != "none" and train.zero_stage > 0:
        raise ScenarioError(
            "train.zero_stage", f"{train.zero_stage} and fsdp {train.fsdp} exclude each other: choose one"
        )
    if train.virtual_pipeline_parallel_size > 1 and (
        "pipeline_schedule" in train.explicit and train.pipeline_schedule in ("1f1b", "gpipe")
    ):
        raise ScenarioError(
            "train.virtual_pipeline_parallel_size",
            f"{train.virtual_pipeline_parallel_size} needs pipeline_schedule interleaved-1f1b; it is "
            f"{train.pipeline_schedule}",
        )


def _with_quantization(train: TrainSettings) -> tuple[TrainSettings, tuple[str, ...]]:
    if train.method != "qlora" or train.quantization is not None:
        return train, ()
    return train.replace(quantization="nf4"), ("method qlora without a quantization: nf4 is assumed",)


def _with_schedule(train: TrainSettings) -> TrainSettings:
    """Chunks of a stage take turns in no other order than this one (Megatron-LM takes it wherever there are any)."""
    if train.virtual_pipeline_parallel_size == 1 or "pipeline_schedule" in train.explicit:
        return train
    return train.replace(pipeline_schedule="interleaved-1f1b")


def _with_rollout(train: TrainSettings) -> TrainSettings:
    """A rollout engine is among the models where its share is said."""
    named = any(name.startswith("rollout") for name in train.extra_models)
    if train.rollout_gpu_memory_utilization is None or named:
        return train
    return train.replace(extra_models=(*train.extra_models, "rollout"))


def _checked_serve(serve: ServeSettings, num_gpus: int | None, *, on_cpu: bool) -> Checked:
    engine = engine_named(serve.engine)
    said_anyway = ("quantization",) if engine.reads_gguf and serve.quantization == "gguf" else ()
    notes = check_owners(serve, "serve", but=said_anyway)
    if serve.gguf_quant is not None and not engine.reads_gguf and serve.quantization != "gguf":
        needed = f"needs quantization gguf with the engine {serve.engine}"
        raise ScenarioError("serve.gguf_quant", f"{needed}; llama.cpp and ollama read GGUF as it is: set engine")
    if not (engine.runs_on_cpu or on_cpu):
        _check_some_gpu(num_gpus)
    return _split(Checked(serve, num_gpus, notes), "serve", SERVE_SPLITS)


def _check_some_gpu(num_gpus: int | None) -> None:
    if num_gpus == 0:
        raise ScenarioError("num_gpus", "0 means CPU only, which is estimated for the engine llama.cpp and for loading")


def _split(found: Checked, table: str, keys: tuple[str, ...]) -> Checked:
    """Model copies must fill the GPUs evenly; GPUs that were not counted follow from the split."""
    splits = {key: getattr(found.table, key) for key in keys}
    needed = prod(splits.values())
    if needed == 1 or (found.num_gpus and found.num_gpus % needed == 0):
        return found
    factors = [f"{key} {size}" for key, size in splits.items() if size > 1]
    product = " × ".join(factors) + (f" = {needed}" if len(factors) > 1 else "")
    if found.num_gpus is None:
        return replace(found, num_gpus=needed, notes=(*found.notes, f"num_gpus {needed}: {' × '.join(factors)}"))
    first = next(key for key, size in splits.items() if size > 1)
    raise ScenarioError(f"{table}.{first}", f"{product} does not divide num_gpus {found.num_gpus}")


def check_owners(settings: Settings, path: str, *, but: Collection[str] = ()) -> tuple[str, ...]:
    """Notes for settings that change nothing: their owner is absent, or leaves them out of the answer.

    Settings that hold their default contradict nothing, nor do those of `but`. Raises ScenarioError for a setting of an
    absent owner that refuses it.
    """
    notes = []
    engine = getattr(settings, "engine", None)
    record = engine_named(engine) if engine is not None else None
    for key in sorted(settings.explicit.difference(but)):
        whose = ownership_of(type(settings))[key]
        if not settings.changes(key):
            continue
        lacks = record is not None and key in record.lacks
        left_out = record is not None and key in record.uncounted
        left_out = left_out or any(is_there(owner, settings) for owner in whose.uncounted)
        if not lacks and not left_out and any(is_there(owner, settings) for owner in whose.owners):
            continue
        if left_out and not lacks:
            notes.append(f"{key} of {engine} is accepted, and left out of the answer")
        elif whose.owners:
            why = _why(settings, whose.all)
            if whose.owners[0].refuses:
                raise ScenarioError(f"{path}.{key}", why + _instead(settings, key, path))
            notes.append(f"{key} changed nothing here: it {why}")
    return tuple(notes)


def is_there(owner: Owner, settings: Settings) -> bool:
    """Whether an owner is there under these settings."""
    within = owner.within is None or is_there(owner.within, settings)
    return within and owner.is_there(getattr(settings, owner.key))


def _why(settings: Settings, owners: Owners) -> str:
    """Why none of these owners is there."""
    first = owners[0]
    if first.within is not None and not is_there(first.within, settings):
        return _why(settings, (first.within,))
    value = getattr(settings, first.key)
    if first.needs not in first.values:
        return f"needs {first.needs}; it is {'not set' if value is None else value}"
    names = [owner.needs for owner in owners if owner.key == first.key and not _runs_another(owner)]
    kind = first.key if len(names) == 1 else f"{first.key}s"
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"belongs to the {kind} {listed}; the {first.key} is {value}"


def _runs_another(owner: Owner) -> bool:
    """Whether it is an engine that runs another, whose name stands for both."""
    return owner.key == "engine" and bool(engine_named(owner.needs).runs)


def _instead(settings: Settings, key: str, path: str) -> str:
    """The way out: what the same is called where the settings stand."""
    own = called(key, path, getattr(settings, "engine", None))
    whose = ownership_of(type(settings)).get(own or "")
    elsewhere = whose is not None and whose.owners and not any(is_there(owner, settings) for owner in whose.owners)
    return "" if own is None or elsewhere else f": set {own}"
