"""FSDP's root unit: embedding, last norm and output layer, whose gradients wait for the end of backward.

A unit's gradients are reduced when the last of its weights has one. The output layer's is there first, the embedding's
last, so that the output layer's waits whole through all layers; then the gradients and the input of their
reduce-scatter are there at once (torch 2.13 distributed/fsdp/_fully_shard: _fsdp_state.py
`_root_post_backward_final_callback`, _fsdp_collectives.py `foreach_reduce`). torchtitan makes units of its own of the
embedding and of the output layer, which are reduced as soon as they are done; so do torchtune's recipes where the two
share no weights (0.6.1 recipes/configs: custom_sharded_layers), and they are whole only while they run. accelerate
reduces in the compute dtype (utils/dataclasses.py `set_mixed_precision`), torchtitan and torchtune in fp32.

FSDP 1 joins the unit's gradients into that of its flat parameter, beside them and the gathered unit (torch 2.13
distributed/fsdp/_flat_param.py `_use_unsharded_views`: the gradient of a split).
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.exchange.wrapping import EMBEDDING, MODULE, kinds_of_units, wraps_nothing
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import rounded, trained_tensors, width
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain


@record
class RootUnit:
    """Bytes of the last reduction of a step.

    `unsharded`: the gradients of the unit that it reduces, `scattered`: the collective's input, `gathered`: the unit's
    weights where they are still whole, `share`: the rank's own
    part of the result, not there yet; `waiting`: what the output layer's gradients take while layers run,
    beyond their share, `above`: all of them.
    """

    unsharded: int = 0
    scattered: int = 0
    share: int = 0
    waiting: int = 0
    above: int = 0
    gathered: int = 0


def own_units(train: ResolvedTrain, model: Model) -> bool:
    """Whether embedding and output layer are units, so that what is outside the layers is not whole while those run."""
    said = kinds_of_units(train)
    makes_them = not said.isdisjoint((EMBEDDING, MODULE)) if said else framework_of(train).sharding.outer_units(train)
    return makes_them and (train.fsdp_version == 2 or bool(said)) and not model.shares_weights


def loss_is_apart(train: ResolvedTrain, model: Model) -> bool:
    """Whether the loss comes after the root unit's forward, which makes no logits of its own."""
    return framework_of(train).sharding.loss_after_root and own_units(train, model)


def reduced_in(train: ResolvedTrain, model: Model) -> int:
    """Bytes of a value while FSDP 2 reduces it."""
    compute = execution(train, model)
    narrow = width(compute.autocast or compute.param_dtype)
    return narrow if framework_of(train).gradients.reduced_in_compute_dtype else width(train.grad_dtype)


@lru_cache(maxsize=4096)
def root_unit(model: Model, train: ResolvedTrain, placement: Placement) -> RootUnit:
    """The root unit of one rank; nothing where FSDP does not cut the weights or trains none of the unit's."""
    if train.fsdp == "none" or placement.weight_shards == 1 or placement.stages > 1:
        return RootUnit()
    compute = execution(train, model)
    narrow = width(compute.autocast or compute.param_dtype)
    alone = wraps_nothing(train)
    outside = [(t, base) for t, base in trained_tensors(model, train) if base.layer is None or alone]
    embeds = {base.name for _, base in outside if base.part == "embedding"}
    are_apart = own_units(train, model)
    if are_apart:
        outside = [(t, base) for t, base in outside if base.name in embeds]
    numel = sum(placement.local_numel(base, t.numel) for t, base in outside)
    share = sum(
        rounded(placement.gradient_numel(base, placement.local_numel(base, t.numel)) * t.grad_bytes)
        for t, base in outside
    )
    above = sum(placement.local_numel(base, t.numel) for t, base in outside if base.name not in embeds)
    grad = width(train.grad_dtype)
    waiting = above * narrow - -(-above // placement.gradient_shards) * grad
    if alone:  # all wait whole, and are counted as they come
        above = waiting = 0
    if are_apart:  # autograd holds the gradient until its hook returns: the result is beside it
        share = 0
    return RootUnit(
        unsharded=numel * narrow,
        scattered=numel * (narrow if train.fsdp_version == 1 else reduced_in(train, model)),
        gathered=numel * narrow if train.fsdp_version == 1 else 0,
        share=share,
        above=above * narrow,
        waiting=max(0, waiting),
    )
