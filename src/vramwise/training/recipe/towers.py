"""Towers under tensor parallelism: most implementations leave them whole on every rank.

transformers 5.23 cuts what a class's `base_model_tp_plan` names, which few vision configs have; torchtitan, torchtune
and their like cut the language model alone. Megatron's towers have its language model's degree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.blocks import Block, Parameter
from vramwise.models.model import Model
from vramwise.models.type_facts import has_fact
from vramwise.training.resolved import ResolvedTrain


def cuts_towers(train: ResolvedTrain, model: Model) -> bool:
    """Whether tensor parallelism cuts what is not text, too."""
    if train.tensor_parallel_size == 1:
        return False
    planned = has_fact("transformers", "planned_towers", model.config.model_type)
    return planned or framework_of(train).sharding.cuts_towers


def with_whole_towers(train: ResolvedTrain, model: Model) -> Model:
    """The model with every weight that is not text's on every rank, where its implementation leaves them so."""
    if train.tensor_parallel_size == 1 or cuts_towers(train, model):
        return model
    return _replicated(model) if any(block.modality != "text" for block in model.blocks) else model


@lru_cache(maxsize=16)
def _replicated(model: Model) -> Model:
    return replace(model, blocks=tuple(b if b.modality == "text" else _whole(b) for b in model.blocks))


def _whole(block: Block) -> Block:
    def whole(p: Parameter) -> Parameter:
        return replace(p, shard="replicated")

    return replace(block, ops=tuple(replace(op, parameters=tuple(map(whole, op.parameters))) for op in block.ops))
