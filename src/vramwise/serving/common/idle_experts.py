"""Experts that do nothing (LongCat Flash): transformers' class has weights for them, files and engines have none."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from vramwise.models import Block, Model
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.type_facts import ANY, has_fact


@lru_cache(maxsize=8)
def without_idle_experts(model: Model) -> Model:
    """The model as files and engines hold it: every product has as many experts as there are that do something.

    transformers 5.23 `LongcatFlashExperts` makes `gate_up_proj` for all experts and `down_proj` for those that do
    something; loading leaves the rest as it was made. vLLM 0.33.0 and SGLang 0.5.23 `models/longcat_flash.py` make
    neither.
    """
    if not has_fact(ANY, "idle_experts", model.config.model_type):
        return model
    return replace(model, blocks=tuple(_narrowed(block) for block in model.blocks))


def _narrowed(block: Block) -> Block:
    return replace(block, ops=tuple(_own_weights(op) if isinstance(op, ExpertMlps) else op for op in block.ops))


def _own_weights(op: ExpertMlps) -> ExpertMlps:
    working = min(parameter.shape[0] for parameter in op.parameters)
    return replace(op, parameters=tuple(replace(p, shape=(working, *p.shape[1:])) for p in op.parameters))
