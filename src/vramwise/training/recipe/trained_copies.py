"""Weights that train whole beside adapters: peft's `modules_to_save` are deep copies of modules, which stay frozen.

A copy shares its storage with nobody: of tied weights each one that is named trains a copy of its own, and one that is
not named keeps the frozen one (peft 0.21 utils/other.py ModulesToSaveWrapper `update`). Not counted:
`ensure_weight_tying`, which makes one copy of both.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.blocks import Block, Parameter
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings
from vramwise.training.recipe.framework_defaults import ADAPTERS


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
