"""The dtypes of a precision, and fp16 on cards that do not compute in bf16, where nobody stated a precision.

What is left open is taken in bf16, as people train today. On a card without it (Volta, Turing) people state fp16 (trl
1.16 trainer/base_config.py, transformers 5.23 training_args.py: bf16 "Requires Ampere or higher"; torchtune 0.6.1
training/precision.py), and Unsloth takes that by itself (2026.10 models/_utils.py `SUPPORTS_BFLOAT16`: capability 8 or
more; models/rl.py "V100/T4 use fp16"). It is no relabelling: torch's scaler refuses fp16 gradients of weights that
train (torch 2.13 amp/grad_scaler.py `_unscale_grads_`: "Attempting to unscale FP16 gradients."), and has no kernel for
bf16 ones (pytorch issue 127176: "not implemented for 'BFloat16'"), so that those stay in fp32 under autocast, whatever
the checkpoint is in. Frozen weights below adapters are loaded in fp16.

Programs that ask torch stay in bf16 there: it says yes for a card that only emulates it (torch 2.13 cuda/__init__.py
`is_bf16_supported(including_emulation=True)`), as their records state (`Casts.emulates_bf16`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from vramwise.errors import VramwiseError
from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.scenario import Scenario, TrainSettings
from vramwise.training.recipe.framework_defaults import ADAPTERS, with_framework_defaults

# precision -> weights, gradients, master copy, optimizer states, compute
DTYPES: dict[str, tuple[str, str, str | None, str, str]] = {
    "bf16-mixed": ("fp32", "fp32", None, "fp32", "bf16"),
    "bf16": ("bf16", "bf16", None, "bf16", "bf16"),
    "bf16-master": ("bf16", "bf16", "fp32", "fp32", "bf16"),
    "fp16-mixed": ("fp32", "fp32", None, "fp32", "fp16"),
    "fp16": ("fp16", "fp16", None, "fp16", "fp16"),
    "fp16-master": ("fp16", "fp16", "fp32", "fp32", "fp16"),
    "fp32": ("fp32", "fp32", None, "fp32", "fp32"),
    "fp8-mixed": ("fp32", "fp32", None, "fp32", "bf16"),
}
_IN_FP16: Mapping[str, str] = {"bf16-mixed": "fp16-mixed", "bf16": "fp16-mixed", "bf16-master": "fp16-master"}
_STATED = frozenset({"precision", "param_dtype", "compute_dtype"})


def weights_dtype(train: TrainSettings) -> str:
    """The dtype of weights as far as precision tells."""
    return train.param_dtype or DTYPES[train.precision][0]


def is_open(scenario: Scenario) -> bool:
    """Whether a training's precision is left open on cards of which one has no bf16."""
    return scenario.task == "train" and not _STATED & scenario.train.explicit and bool(without_bf16(scenario))


def takes_fp16(scenario: Scenario) -> bool:
    """Whether it is run in fp16 for that."""
    return is_open(scenario) and not framework_of(scenario.train).casts.emulates_bf16(scenario.train)


def on_its_card(scenario: Scenario, model: Model) -> TrainSettings:
    """The settings with fp16 stated where nobody stated a precision and a card has no bf16."""
    train = scenario.train
    if not takes_fp16(scenario):
        return train
    values = in_fp16(with_framework_defaults(train, model, scenario.num_gpus, weights_dtype))
    return train.replace(**values) if values else train


def in_fp16(decided: TrainSettings) -> Mapping[str, str]:
    """What states fp16 in place of the precision that was decided; empty where that is not bf16."""
    precision = _IN_FP16.get(decided.precision)
    return {} if precision is None else stating(precision, decided)


def stating(precision: str, decided: TrainSettings) -> Mapping[str, str]:
    """What states an fp16 precision: frozen weights below adapters are in fp16 too."""
    adapts = decided.method in ADAPTERS and precision.endswith("-mixed")
    return {"precision": precision, **({"param_dtype": "fp16"} if adapts else {})}


def refused_in_fp16(decided: TrainSettings) -> bool:
    """Whether adapters get bf16 gradients, for which torch's scaler of fp16 has no kernel."""
    return decided.method in ADAPTERS and decided.precision.endswith("-mixed") and decided.lora_dtype == "bf16"


def without_bf16(scenario: Scenario) -> str:
    """The name of a card of the scenario that does not compute in bf16; empty where all do."""
    return next(filter(None, map(_without, scenario.gpus or (scenario.gpu or "",))), "")


@cache
def _without(card: str) -> str:
    if not card:
        return ""
    from vramwise.hardware import find_gpu

    try:
        gpu = find_gpu(card).gpu
    except VramwiseError:
        return ""
    return gpu.name if gpu is not None and gpu.supports("bf16") is False else ""
