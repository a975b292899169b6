"""Contradictions between keys of a task's table that need no model to be seen, and values that follow from others."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.records import record
from vramwise.scenario.inference import GenerateSettings, ServeSettings
from vramwise.scenario.ownership import check_owners
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
