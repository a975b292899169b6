"""Other models that share the GPU with the one that trains (`extra_models`).

    reference, teacher, reward   frozen: weights, divided as the trained ones are; `NAME:MODEL` names another model
    critic, value                as large as the trained model, trained with it: weights, gradients, optimizer states
    rollout, rollout:ENGINE      an engine with a budget of its own: not counted

Under LoRA a reference is the base with its adapters switched off (trl 0.24 trainer/dpo_trainer.py, grpo_trainer.py:
`ref_model = None` for a PEFT model), which takes nothing. Not counted: what these models save in passes of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from vramwise.errors import ScenarioError, nearest
from vramwise.models import describe
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.sources import resolve
from vramwise.training.heads import with_head
from vramwise.training.parallel import Placement
from vramwise.training.states import model_states

FROZEN = ("reference", "teacher", "reward")
TRAINED = ("critic", "value")
ELSEWHERE = ("rollout",)


def role_of(name: str) -> str:
    """What a model of `extra_models` is. Raises `ScenarioError` for an unknown role."""
    role = name.partition(":")[0].strip().lower().removesuffix("_model").removesuffix(" model")
    role = {"ref": "reference"}.get(role, role)
    known = (*FROZEN, *TRAINED, *ELSEWHERE)
    if role not in known:
        hint = ", ".join(nearest(role, known) or known)
        raise ScenarioError("train.extra_models", f'"{name}" is no role: did you mean {hint}?')
    return role


def takes_nothing(name: str, train: TrainSettings) -> bool:
    """Whether a model of `extra_models` adds no memory here: an engine's own, or adapters switched off."""
    role = role_of(name)
    return role in ELSEWHERE or (role == "reference" and ":" not in name and train.method in ("lora", "qlora"))


@lru_cache(maxsize=256)
def extra_model_bytes(model: Model, train: TrainSettings, placement: Placement) -> Mapping[str, int]:
    """Bytes that stay on a rank for each other model, by term."""
    found: dict[str, int] = {}
    for name in train.extra_models:
        role = role_of(name)
        if takes_nothing(name, train):
            continue
        _, colon, other = name.partition(":")
        owned = _named(other) if colon else with_head(model, "sequence-classification") if role == "reward" else model
        if role in TRAINED:
            states = model_states(owned, train, placement)
            size = states.weights + states.frozen_weights + states.adapter_weights
            size += states.gradients + states.master + states.optimizer
        else:
            states = model_states(owned, train.replace(method="full", trainable=(), quantization=None), placement)
            size = states.weights
        term = f"{role} model"
        found[term] = found.get(term, 0) + size
    return found


def _named(name: str) -> Model:
    source = resolve(name)
    return describe(source.config, source.id)
