"""What each framework does where a scenario says nothing: framework_defaults.csv, one row a setting, with its source.

The first row that holds decides a key. `when` is a list of conditions, all of which must hold:

    KEY=A|B            a key of the train table, as stated or as decided by a row above
    PACKAGE>=1.2       a version; a package that is not named is the newest
    month<2025-02      the month that is named in place of a version; the newest where none is
    zero, fsdp         whether either shares the model's states
    tensor_parallel_size>1
    gpus=1, gpus>1     of the whole job
    checkpoint=A|B     dtype of the checkpoint
    type=A|B           model type
    parameters>=7e10   of the model; vocabulary<128000
    modules=A|B        all of them are names of the model's modules
    open:KEY           the scenario does not state the key
    names:PROGRAM      framework_version names it, whatever its version

Values are those of the key, but `checkpoint` is the checkpoint's dtype and `weights` that of the weights. `param_dtype`
is decided only where `precision` is open too: a stated precision has its own dtypes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vramwise.frameworks.versions import library_version, month_named, names, stated, torch_version
from vramwise.models.checkpoint_dtype import loaded_dtype
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.scenario.definition import DEFAULTS, KINDS
from vramwise.scenario.values import Switch

ADAPTERS = frozenset({"lora", "qlora"})
_SAID = {"transformers": "Trainer", "llamafactory": "LLaMA-Factory", "megatron": "Megatron", "pytorch": "plain PyTorch"}
_COMPARISON = re.compile(r"([\w-]+)(>=|<)([\d.e-]+)")


@dataclass(frozen=True, slots=True)
class Row:
    """A setting of a framework, and when it holds."""

    when: tuple[str, ...]
    key: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
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


@cache
def rows_of(framework: str) -> tuple[Row, ...]:
    """The rows of one framework, in the file's order."""
    with open(Path(__file__).with_suffix(".csv"), newline="", encoding="utf-8") as file:
        return tuple(
            Row(tuple(row["when"].split()), row["key"], row["value"], row["source"])
            for row in csv.DictReader(file)
            if framework in row["framework"].split("|")
        )


def with_framework_defaults(
    train: TrainSettings, model: Model, gpus: int, weights: Callable[[TrainSettings], str]
) -> TrainSettings:
    """The settings with every key that is open and that the framework decides; `weights`: their dtype."""
    explicit, decided = train.explicit, set(train.explicit)
    for row in rows_of(train.framework):
        if row.key in decided or (row.key.startswith("lora_") and train.method not in ADAPTERS):
            continue
        if row.key == "param_dtype" and ("precision" in explicit or train.precision.endswith("-master")):
            continue
        question = Question(train, explicit, model, gpus, weights)
        if all(_holds(condition, question) for condition in row.when):
            train = train.replace(**{row.key: _value(row, question)})
            decided.add(row.key)
    return train


def taken_note(given: TrainSettings, decided: TrainSettings) -> str:
    """What the framework decided otherwise than the scenario's own defaults; empty where nothing is."""
    defaults = DEFAULTS[TrainSettings]
    taken = [
        f"{key} {_shown(getattr(decided, key))}"
        for key in dict.fromkeys(row.key for row in rows_of(given.framework))
        if key not in given.explicit and getattr(decided, key) != defaults[key]
        and (not key.startswith("lora_") or given.method in ADAPTERS)
        and (key != "param_dtype" or ("precision" not in given.explicit and decided.precision.endswith("-mixed")))
    ]  # fmt: skip
    program = _SAID.get(given.framework, given.framework)
    if given.framework == "transformers":
        program = f"{program} {'.'.join(map(str, library_version(given)))} with --bf16"
    return f"not stated, so as {program} does it: {', '.join(taken)}" if taken else ""


def _value(row: Row, question: Question) -> Any:
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
    if condition == "tensor_parallel_size>1":
        return train.tensor_parallel_size > 1
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
    if key == "type":
        return question.model.config.model_type in wanted
    if key == "modules":
        return {p.name.split(".")[-2] for p in question.model.parameters if "." in p.name}.issuperset(wanted)
    return str(getattr(train, key)) in wanted


def _compares(name: str, sign: str, text: str, question: Question) -> bool:
    """Whether a version, month or number of parameters is at least (or below) the one given."""
    if name in ("parameters", "vocabulary"):
        model = question.model
        size = model.num_parameters if name == "parameters" else model.config.size("vocab_size", default=1)
        return (size >= float(text)) == (sign == ">=")
    found: tuple[int, ...] | None
    if name == "month":
        found = month_named(question.train)
    elif name == "transformers":
        found = library_version(question.train)
    elif name == "torch":
        found = torch_version(question.train)
    else:
        found = stated(question.train, name)
    at_least = found is None or found >= tuple(int(piece) for piece in re.split(r"[.-]", text))
    return at_least == (sign == ">=")


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "+".join(value)
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
