"""What a scenario leaves open, as its framework decides it: by the defaults of the record (frameworks/defaults.py).

So it is with kernel libraries that run.

Weights that train whole beside adapters: peft's `modules_to_save` are deep copies of modules, which stay frozen.

A copy shares its storage with nobody: of tied weights each one that is named trains a copy of its own, and one that is
not named keeps the frozen one (peft 0.21 utils/other.py ModulesToSaveWrapper `update`). Not counted:
`ensure_weight_tying`, which makes one copy of both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.frameworks.defaults import Default
from vramwise.frameworks.versions import described, followed, month_named, names, reaches, titled
from vramwise.models.blocks import Block, Parameter
from vramwise.models.config import loaded_dtype
from vramwise.models.execution import Kernels
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.scenario import TrainSettings
from vramwise.scenario.definition import DEFAULTS, KINDS
from vramwise.scenario.values import Switch
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.kernels import Versions

ADAPTERS = frozenset({"lora", "qlora"})
SIZES = frozenset({"tensor_parallel_size", "pipeline_parallel_size"})
_COMPARISON = re.compile(r"([\w-]+)(>=|<)([\d.e-]+)")


@record
class Question:
    """What conditions are asked of: the settings as decided so far, those stated, the model, the job's GPUs."""

    train: TrainSettings
    explicit: frozenset[str]
    model: Model
    gpus: int
    weights: Callable[[TrainSettings], str]

    @property
    def checkpoint(self) -> str:
        """The dtype in which the checkpoint's weights are loaded."""
        return loaded_dtype(self.model.config.values)


def with_framework_defaults(
    train: TrainSettings, model: Model, gpus: int, weights: Callable[[TrainSettings], str]
) -> TrainSettings:
    """The settings with every key that is open and that the framework decides; `weights`: their dtype."""
    explicit, decided = train.explicit, set(train.explicit)
    for row in framework_of(train).defaults:
        if row.key in decided or (row.key.startswith("lora_") and train.method not in ADAPTERS):
            continue
        if row.key == "param_dtype" and ("precision" in explicit or train.precision.endswith("-master")):
            continue
        question = Question(train, explicit, model, gpus, weights)
        if all(_holds(condition, question) for condition in row.conditions):
            train = train.replace(**{row.key: _value(row, question)})
            decided.add(row.key)
    return train


def taken_note(given: TrainSettings, decided: TrainSettings) -> str:
    """What the framework decided otherwise than the scenario's own defaults; empty where nothing is."""
    # a switch that nobody decides is off
    defaults = {key: False if default is None else default for key, default in DEFAULTS[TrainSettings].items()}
    taken = [
        f"{key} {_shown(getattr(decided, key))}"
        for key in dict.fromkeys(row.key for row in framework_of(given).defaults)
        if key not in given.explicit and getattr(decided, key) not in (None, defaults[key])
        and (not key.startswith("lora_") or given.method in ADAPTERS)
        and (key != "param_dtype" or ("precision" not in given.explicit and decided.precision.endswith("-mixed")))
    ]  # fmt: skip
    framework = framework_of(given)
    program = titled(given) if framework.as_run is None else framework.as_run(given)
    return f"not stated, so as {program} does it: {', '.join(taken)}" if taken else ""


def _value(row: Default, question: Question) -> object:
    if row.value == "checkpoint":
        return question.checkpoint
    if row.value == "weights":
        return question.weights(question.train)
    kind = KINDS[TrainSettings][row.key]
    return kind.read(row.value == "true" if isinstance(kind, Switch) else kind.from_text(row.value), row.key)


def _holds(condition: str, question: Question) -> bool:
    train = question.train
    if condition in ("zero", "fsdp"):
        return bool(train.zero_stage) if condition == "zero" else train.fsdp != "none"
    if condition in ("gpus=1", "gpus>1"):
        return (question.gpus == 1) == (condition == "gpus=1")
    if condition == "copies>1":
        return question.gpus > train.tensor_parallel_size * train.pipeline_parallel_size
    if condition.startswith("names:"):
        return names(train, condition.removeprefix("names:"))
    if condition.startswith("open:"):
        return condition.removeprefix("open:") not in question.explicit
    compared = _COMPARISON.fullmatch(condition)
    if compared is not None:
        return _compares(compared[1], compared[2], compared[3], question)
    key, _, values = condition.partition("=")
    wanted = values.split("|")
    if key == "checkpoint":
        return question.checkpoint in wanted
    if key == "kernels":
        return not set(wanted).isdisjoint(train.kernels)
    if key == "type":
        return question.model.config.model_type in wanted
    if key == "modules":
        return {p.name.split(".")[-2] for p in question.model.parameters if "." in p.name}.issuperset(wanted)
    return str(getattr(train, key)) in wanted


def _compares(name: str, sign: str, text: str, question: Question) -> bool:
    """Whether a version, month, size or number of parameters is at least (or below) the one given."""
    if name in ("parameters", "vocabulary"):
        model = question.model
        size = model.num_parameters if name == "parameters" else model.config.size("vocab_size", default=1)
        return (size >= float(text)) == (sign == ">=")
    train = question.train
    if name in SIZES:
        return bool(getattr(train, name) >= int(text)) == (sign == ">=")
    found: tuple[int, ...] | None = month_named(train) if name == "month" else followed(train, name)
    return reaches(found, tuple(int(piece) for piece in re.split(r"[.-]", text))) == (sign == ">=")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return "+".join(value)
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def trains_copies(train: TrainSettings) -> bool:
    """Whether base weights train beside adapters."""
    return train.method in ADAPTERS and bool(train.trainable)


def copied_dtype(train: TrainSettings) -> str | None:
    """The dtype of such a copy, and of parts that train alone; None: that of the weights that are loaded."""
    how = framework_of(train).quantizing.copies
    if how == "fp32 under autocast" and (trains_copies(train) or train.method == "freeze"):
        return "fp32" if train.precision.endswith("-mixed") else None
    if how == "without fp16" and trains_copies(train) and train.param_dtype == "fp16":
        return "fp32"
    return None


def with_own_copies(model: Model, train: TrainSettings) -> Model:
    """The model in which tied weights of which a copy trains are apart."""
    return _apart(model, train.trainable) if trains_copies(train) and model.shares_weights else model


@lru_cache(maxsize=16)
def _apart(model: Model, pieces: tuple[str, ...]) -> Model:
    def own(p: Parameter) -> Parameter:
        tied = p.tied_to
        if tied is None or not any(piece in name for piece in pieces for name in (p.name, tied)):
            return p
        return replace(p, tied_to=None, original=tied)

    def of(block: Block) -> Block:
        return replace(block, ops=tuple(replace(op, parameters=tuple(map(own, op.parameters))) for op in block.ops))

    return replace(model, blocks=tuple(map(of, model.blocks)))


def kernel_names(train: ResolvedTrain) -> tuple[str, ...]:
    """Kernel libraries that are asked for, and those that the framework always runs."""
    return (*train.kernels, *framework_of(train).kernels)


def runs_own_layers(train: ResolvedTrain, model: Model) -> bool:
    """Whether the framework's own layers are described for this model; they know no DoRA, images or cut layers."""
    own = framework_of(train).own_layers
    if not own or model.head != "causal-lm" or train.dora or train.images_per_sequence:
        return False
    from vramwise.kernels import kernels_for

    return train.tensor_parallel_size == 1 and bool(kernels_for((own,), model.config)[0].overrides)


def kernels_of(train: ResolvedTrain, model: Model) -> tuple[Kernels, ...]:
    """Records of all kernels that run, the framework's own layers first."""
    framework = framework_of(train)
    if not runs_own_layers(train, model):
        return records_of(kernel_names(train), train, model)
    versions = ((framework.own_layers, framework.own_layers_version(train)),)
    return records_of((framework.own_layers, *kernel_names(train)), train, model, versions)


def records_of(
    names: tuple[str, ...], train: ResolvedTrain, model: Model, versions: Versions = ()
) -> tuple[Kernels, ...]:  # fmt: skip
    """Records of kernel libraries as the framework puts them into this model."""
    if not names:
        return ()
    from vramwise.kernels import kernels_for, kernels_named

    swapped = framework_of(train).swaps_in
    told = ((name, kernels_named(name).told_by) for name in names)
    versions += tuple((name, followed(train, package) or described(package)) for name, package in told if package)
    return kernels_for(tuple(swapped.get(name, name) for name in names), model.config, versions)
