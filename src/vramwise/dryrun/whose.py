"""Whose model a name is, and what a run of timm's or sentence-transformers' own class of it is given.

Both libraries make a class from files without weights: timm from an architecture's name, its tag included
(timm 1.0.31 models/_factory.py), sentence-transformers from `modules.json` and what it names; where there is none, from
a class of transformers with the mean of its tokens (6.2.0 base/model.py, sentence_transformer/model.py). Their
organizations on the Hub are called after them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from vramwise.dryrun.pipeline_job import is_pipeline
from vramwise.errors import SourceError, UsageError
from vramwise.formats.ranged import RangedFiles
from vramwise.measure.libraries import need
from vramwise.scenario import Scenario
from vramwise.scenario.names import CLASSIFIERS, EMBEDDERS, LIBRARIES
from vramwise.sources import ModelSource, resolve
from vramwise.sources.repository import KEY, MODULES
from vramwise.units import MIB

AUTO, TRANSFORMERS, PIPELINES = LIBRARIES[0], LIBRARIES[1], LIBRARIES[3]
ARCHITECTURE, FILES, OWN_LENGTH = "architecture", "files", "own_length"
_ON_A_HUB: Final = ("hf-hub:", "hf_hub:")
_TASKS: Final = ("train", "generate", "load")
_OF_ANY: Final = frozenset({
    "method", "trainable", "precision", "param_dtype", "optimizer", "optimizer_impl", "checkpointing",
    "gradient_accumulation_steps", "clip_grad_norm", "micro_batch_size", "dtype", "batch_size",
})  # fmt: skip
_OF_ONE: Final = {
    CLASSIFIERS: frozenset({"image_size"}),
    EMBEDDERS: frozenset({"sequence_length", "prompt_tokens", "head", "framework", "attention"}),
}
_METHODS: Final = ("full", "freeze")
_USUAL: Final = {
    "framework": "pytorch", "method": "full", "precision": "bf16-mixed", "checkpointing": "none",
    "micro_batch_size": 1, "gradient_accumulation_steps": 1, "optimizer": "adamw",
}  # fmt: skip


def found_by(scenario: Scenario) -> ModelSource:
    """The scenario's model; an architecture of timm asks no hub. Raises what `resolve` raises."""
    name = scenario.model
    if isinstance(name, str) and scenario.library in (AUTO, CLASSIFIERS):
        plain = name.strip()
        for prefix in _ON_A_HUB:
            plain = plain.removeprefix(prefix)
        organization, slash, rest = plain.partition("/")
        if (organization == CLASSIFIERS and slash and "/" not in rest) or (
            scenario.library == CLASSIFIERS and not slash
        ):
            return ModelSource(plain, {ARCHITECTURE: rest if slash else plain}, "timm's own architectures")
    return resolve(name, source=scenario.source, revision=scenario.revision)


def whose(scenario: Scenario, found: ModelSource) -> str:
    """The library that makes a model: what was asked for, else what its files or its organization say."""
    if is_pipeline(found.config):
        return PIPELINES
    if ARCHITECTURE in found.config and "model_type" not in found.config:
        return CLASSIFIERS
    if scenario.library == AUTO and (found.config.get(KEY) is True or found.id.startswith(f"{EMBEDDERS}/")):
        return EMBEDDERS
    return EMBEDDERS if scenario.library == EMBEDDERS else TRANSFORMERS


def refuse_what_it_does_not_run(scenario: Scenario, library: str) -> None:
    """Raises UsageError for keys that say nothing of such a model, MissingLibraryError without its library."""
    need(library.replace("-", "_"))
    if scenario.task not in _TASKS:
        raise UsageError(f"dry-run runs --task {', '.join(_TASKS)} of a model of {library}, not {scenario.task}")
    allowed = _OF_ANY | _OF_ONE[library]
    unused = sorted(key for key in scenario.settings.explicit if key not in allowed) if scenario.task != "load" else []
    if unused:
        name = unused[0].replace("_", "-")
        raise UsageError(f"--{name} is not something that dry-run asks of a model of {library}")
    if scenario.task == "train" and scenario.train.method not in _METHODS:
        raise UsageError(
            f"dry-run trains a model of {library} with --method {' or '.join(_METHODS)}: adapters are a script's "
            "(dry-run -- python FILE.py)"
        )


def classifier_table(scenario: Scenario) -> dict[str, object]:
    """The scenario's table, with the settings that a run of images cannot do without."""
    table: dict[str, object] = dict(scenario.to_dict())
    if scenario.task == "load":
        return table
    given = scenario.settings
    own = {key: getattr(given, key) for key in given.explicit}
    return table | {scenario.task: {**(_USUAL if scenario.task == "train" else {"batch_size": 1}), **own}}


def classifier_config(found: ModelSource) -> dict[str, object]:
    """What timm's `create_model` is given: a config of timm's, or an architecture's name."""
    wanted = ("architecture", "num_classes", "model_args", "pretrained_cfg")
    return {key: found.config[key] for key in wanted if found.config.get(key) is not None}


def embedder_table(table: Mapping[str, Any]) -> dict[str, object]:
    """The table of an embedder, which has no head and makes no new tokens."""
    own = {key: value for key, value in (table.get(table["task"]) or {}).items() if key not in ("head", "new_tokens")}
    return {**table, str(table["task"]): own}


def embedder_config(found: ModelSource, scenario: Scenario) -> dict[str, object]:
    """The encoder's config, the files that put modules around it, and whether the model's own length is meant."""
    config = {key: value for key, value in found.config.items() if key != KEY}
    asked = {"sequence_length", "prompt_tokens"} & set(scenario.settings.explicit)
    return {**config, FILES: _module_files(found.repository), OWN_LENGTH: not asked}


def _module_files(files: RangedFiles | None) -> dict[str, object]:
    """`modules.json` and the small files beside it and in the folders that it names; empty without one."""
    if files is None or MODULES not in files.files():
        return {}
    modules = _read(files, MODULES)
    if not isinstance(modules, list):
        raise SourceError(f"{MODULES}: expected a list of modules")
    paths = [str(one.get("path") or "") for one in modules if isinstance(one, Mapping)]
    wanted = {MODULES, "sentence_bert_config.json", "config_sentence_transformers.json"}
    wanted |= {f"{path}/config.json" for path in paths if path}
    return {name: _read(files, name) for name in sorted(wanted & set(files.files()))}


def _read(files: RangedFiles, name: str) -> object:
    try:
        return json.loads(files.read(name, MIB))
    except (ValueError, RecursionError):
        raise SourceError(f"{name}: no JSON") from None
