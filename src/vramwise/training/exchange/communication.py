"""Buffers of data parallelism: gathered weights, gradient buckets, reduce-scatter inputs.

    DDP         buckets: a copy of the gradients            torch 2.13 DDP (gradient_as_bucket_view=False)
    FSDP 2      2 gathered units and the root unit;         torch 2.13 distributed/fsdp/_fully_shard
                in backward 1 reduce-scatter input
    FSDP 1      as FSDP 2, a unit's gradients joined at end torch 2.13 distributed/fsdp/_runtime_utils.py
                1 gathered unit under reentrant checkpointing
                kept unsharded: gradients between the micro-batches of a pipeline, and
                weights where they are not resharded after forward
    ZeRO        buckets, whole however small the model;     DeepSpeed 0.19 zero/stage_1_and_2.py, zero/stage3.py
                stage 3: what its coordinator keeps gathered    (see `zero`, `zero3`)

Units are the decoder layers; the root unit is what stands outside them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import torch_version
from vramwise.memo import of_model
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import is_outside, loss_is_apart, module_of, own_units, reduced_in, wraps_modules
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import quantizer, reduced_numel, stored, trained_numel
from vramwise.training.model_states.trained import width
from vramwise.training.recipe.fp8_weights import gathered_width
from vramwise.training.recipe.gradient_life import gradient_life, reentrant
from vramwise.training.recipe.settings import execution, longest_comes_first
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.training.exchange.zero_buffers import Check
    from vramwise.training.zero3.coordinator import Gathered

_ROOT_IS_FREED_SINCE = (2, 8)


@record
class Buffers:
    """Bytes of communication buffers alive in forward and in backward, and for the whole step.

    `prefetched`: what of the gathered weights is still the output of their all-gather; `largest_gathers`: the largest
    two such outputs one after the other, that of the root unit included. `between_layers`: the gathered weights while
    no layer runs; `at_loss`, `at_head`: while the head and the loss run, and when the head's backward begins;
    `behind_head`: in the backward pass of the loss itself.
    `backward_buckets`: buckets that are there in backward alone, `buckets_first`: from before its first operation on;
    `buckets_stay`: through all micro-batches of a step but the forward pass of the first;
    `by_call`: what ZeRO-3 keeps gathered, instead of `gathered`; `secondary`: ZeRO++'s second copy of the weights.
    `checks`: the reductions of an offloading ZeRO, with what it takes to look at their gradients; `check_before_step`:
    what it takes of those that stay. `one_piece`: the gradients of FSDP 1's largest unit, joined as its backward ends.
    `unsynced_gradients`: those of earlier micro-batches, whole until the last one's backward pass reduces them.
    """

    gathered: int = 0
    unsharded_gradients: int = 0
    reduce_scatter: int = 0
    buckets: int = 0
    unsynced_gradients: int = 0
    prefetched: int = 0
    largest_gathers: int = 0
    at_loss: int = 0
    between_layers: int = 0
    at_head: int = 0
    behind_head: int = 0
    backward_buckets: int = 0
    buckets_first: bool = False
    buckets_stay: bool = False
    secondary: int = 0
    one_piece: int = 0
    checks: tuple[Check, ...] = ()
    check_before_step: int = 0
    by_call: Gathered | None = None


@of_model
def buffers(model: Model, train: ResolvedTrain, placement: Placement) -> Buffers:
    """Bytes of the buffers of one rank (see the module's table); none for a rank alone.

    Not counted: NCCL's own, which lie outside torch's pool.
    """
    if train.zero_stage:
        return _zero(model, train, placement)
    if placement.data_parallel == 1:
        moved = train.fsdp != "none" and offloaded(train).weights
        return _moved(model, train, placement, width(train.grad_dtype)) if moved else Buffers()
    trained = trained_numel(model, train, placement)
    grad = width(train.grad_dtype)
    if placement.weight_shards > 1:
        return _sharded(model, train, placement, grad)
    if framework_of(train).gradients.main_buffer:  # reduced in their own buffer
        return Buffers()
    if train.fsdp == "none":
        return Buffers(buckets=trained * grad)
    return Buffers(reduce_scatter=_largest_unit(model, train, placement) * grad)


def awaited(exchanged: Buffers, train: ResolvedTrain) -> int:
    """Bytes that can be freed and yet wait for another stream: `active` in torch's counters, not allocated.

    What one stream made and another used is marked (`record_stream`), and its block is taken again only when the work
    is done that was queued by then: gathered weights of ZeRO stage 3 (DeepSpeed 0.19 zero/partition_parameters.py
    `free_param`) and of FSDP 1 (torch 2.13 distributed/fsdp/_flat_param.py `_free_unsharded_flat_param`), and what
    stages 1 and 2 reduce under overlap_comm (stage_1_and_2.py). FSDP 2 marks nothing.
    """
    if train.zero_stage == 3:
        return exchanged.gathered if exchanged.by_call is not None else 0
    if train.zero_stage:
        return exchanged.reduce_scatter if train.overlap_comm else 0
    return exchanged.largest_gathers if train.fsdp != "none" and train.fsdp_version == 1 else 0


def _zero(model: Model, train: ResolvedTrain, placement: Placement) -> Buffers:
    from vramwise.training.exchange.zero_buffers import (
        bucket_bytes,
        bytes_before_step,
        checks_in_backward,
        gathered_weights,
        offload_staging_bytes,
        reduction_bytes,
        secondary_bytes,
    )
    from vramwise.training.recipe.zero import buckets_come_first, buckets_stay, zero_settings

    zero = zero_settings(train, model.hidden_size)
    kept, buckets = gathered_weights(model, train, placement, zero), bucket_bytes(train, zero)
    most = 0 if kept is None else max(*kept.forward.values(), *kept.backward.values())
    return Buffers(
        gathered=most,
        largest_gathers=most,
        at_loss=0 if kept is None else kept.after_forward,
        at_head=0 if kept is None else kept.after_forward,
        behind_head=0 if kept is None else kept.after_forward,
        reduce_scatter=reduction_bytes(model, train, placement, zero),
        buckets=offload_staging_bytes(model, train, placement) + (buckets if train.zero_stage == 3 else 0),
        backward_buckets=buckets if train.zero_stage < 3 else 0,
        buckets_first=buckets_come_first(train),
        buckets_stay=buckets_stay(train),
        secondary=secondary_bytes(model, train, placement),
        checks=checks_in_backward(model, train, placement, zero),
        check_before_step=bytes_before_step(model, train, placement),
        by_call=kept,
    )


def _sharded(model: Model, train: ResolvedTrain, placement: Placement, grad: int) -> Buffers:
    """FSDP full shard: two layers and the root unit are whole."""
    compute = execution(train, model)
    size = width(compute.autocast or compute.param_dtype)
    unit = root = layers = largest = 0
    rule = quantizer(model, train)
    met: set[str] = set()
    for block in model.blocks:
        held = new = 0
        modules: dict[str, int] = {}
        for p in block.parameters:
            if p.tied_to is None and placement.holds(p):
                local = placement.local_numel(p, p.numel)
                here = stored(p, local, train, rule)[0] if rule else local * gathered_width(p, train, size)
                held += here
                modules[module_of(p)] = modules.get(module_of(p), 0) + here
                new += 0 if p.name in met else here  # layers may share their parameters, as ALBERT's do
                met.add(p.name)
        if is_outside(block, train):
            root += new
            largest = max(largest, new)
        else:
            unit = max(unit, *modules.values(), 0) if wraps_modules(train) else max(unit, held)
            layers += new
    trains_whole = train.method == "full"
    reduced = reduced_in(train, model) if train.fsdp_version == 2 else grad
    scattered = _largest_unit(model, train, placement) * reduced if trains_whole else 0
    one_piece = 0
    if train.fsdp_version == 1:
        one_piece, scattered = scattered // reduced * size, 0
    ahead = unit if train.reshard_after_forward and _gathers_ahead(train) else 0
    whole = unit + ahead if train.reshard_after_forward else layers
    around = root  # what is whole while a layer runs
    if own_units(train, model) and train.reshard_after_forward:
        around, root = 0, largest
    held = 0 if train.reshard_after_forward else whole
    at_loss, at_head = _beside_layers(train, model, root, unit, ahead)
    if own_units(train, model) and not loss_is_apart(train, model):
        at_loss = 2 * root  # the last all-gather was the output layer's
    # Units of their own ask for the next when their own backward begins, the root unit when the loss's does
    # (torch 2.13 distributed/fsdp/_fully_shard/_fsdp_state.py `_pre_backward`, on the outputs of a unit's forward).
    behind_head = root if own_units(train, model) else at_head
    return Buffers(
        gathered=whole + around,
        unsharded_gradients=_unsharded_gradients(model, train, placement, grad),
        unsynced_gradients=_unsynced_gradients(model, train, placement, size),
        one_piece=one_piece,
        reduce_scatter=scattered,
        prefetched=ahead,
        largest_gathers=max(unit, largest if own_units(train, model) else root) + unit,
        between_layers=held + root,
        at_loss=0 if _root_is_freed(train, model) else max(at_loss, held + root),
        at_head=max(at_head, held + root),
        behind_head=max(behind_head, held + root),
    )


def _moved(model: Model, train: ResolvedTrain, placement: Placement, grad: int) -> Buffers:
    """One rank's weights that lie on the host and come to the card unit by unit.

    FSDP 2 copies a unit's when it is entered (torch 2.13 _fully_shard/_fsdp_param_group.py `wait_for_unshard`,
    world_size 1) and nothing ahead. FSDP 1 shards nothing over one rank (_init_utils.py NO_SHARD): a unit's copy is a
    tensor of its own (_flat_param.py `flat_param_to`), whose storage nobody frees while autograd keeps what layers
    read, until the backward pass of a layer that is not computed again.
    """
    stays = train.fsdp_version == 1 and train.checkpointing == "none"
    found = _sharded(model, train.replace(reshard_after_forward=False) if stays else train, placement, grad)
    return replace(
        found, gathered=found.gathered - found.prefetched, prefetched=0, reduce_scatter=0, one_piece=0,
        unsharded_gradients=0, unsynced_gradients=0,
    )  # fmt: skip


def _beside_layers(train: ResolvedTrain, model: Model, root: int, unit: int, ahead: int) -> tuple[int, int]:
    """Gathered weights while the head and the loss run, and when the head's backward begins.

    FSDP 1 frees a layer's weights when its forward is over; it gathers the last layer ahead of the head's backward.
    FSDP 2 keeps the output of the last layer's all-gather until the root's forward is over, and gathers that layer
    again before the head's backward (torch 2.13 distributed/fsdp/_fully_shard: `all_gather_state` of
    _fsdp_param_group.py, _post_forward of _fsdp_state.py). torchtitan's loss comes after the root's forward,
    and so does torchtune's, which has the root freed by then since torch 2.8 (pytorch pull requests 154704 and 155319).
    """
    if train.fsdp_version == 1:
        return root, root + ahead
    if _root_is_freed(train, model):
        return 0, root + unit
    return root + (0 if loss_is_apart(train, model) else unit), root + unit


def _root_is_freed(train: ResolvedTrain, model: Model) -> bool:
    """Whether the root unit, with weights in it, is free again when the loss is worked out."""
    own, fsdp_2 = framework_of(train).sharding, train.fsdp == "full-shard" and train.fsdp_version == 2
    asked = own.loss_after_root and own.frees_root and fsdp_2 and train.reshard_after_forward
    return asked and torch_version(train) >= _ROOT_IS_FREED_SINCE and not own_units(train, model)


def _gathers_ahead(train: ResolvedTrain) -> bool:
    """Whether the next unit is gathered while one is in use.

    FSDP 1 does so in backward, for units whose forward left a hook on outputs that need gradients
    (`_needs_pre_backward_unshard`, torch 2.13 distributed/fsdp/_runtime_utils.py `_get_handle_to_prefetch`). Under
    reentrant checkpointing forward runs without gradients, so that no unit has one before it is computed again.
    """
    return not (train.fsdp_version == 1 and reentrant(train))


def _unsharded_gradients(model: Model, train: ResolvedTrain, placement: Placement, grad: int) -> int:
    """Gradients that wait whole for the end of a pipeline's step, or come as litgpt's longest micro-batch goes on.

    A pipeline stage under FSDP 2 adds them up in the reduction's dtype (torchtitan 0.2 pipeline_parallel.py).
    """
    if placement.stages > 1:
        return reduced_numel(model, train, placement) * grad
    return _whole_in_litgpt(model, train) if gradient_life(train).deferred and longest_comes_first(train) else 0


def _unsynced_gradients(model: Model, train: ResolvedTrain, placement: Placement, size: int) -> int:
    """Gradients that earlier micro-batches left whole."""
    if not gradient_life(train).deferred or longest_comes_first(train):
        return 0
    if framework_of(train).gradients.deferred_with_frozen:
        return _whole_in_litgpt(model, train)
    return reduced_numel(model, train, placement) * size


def _whole_in_litgpt(model: Model, train: ResolvedTrain) -> int:
    """Whole gradients in litgpt, where FSDP 1's flat parameters have some for frozen values too."""
    return sum(p.numel for p in model.parameters) * width(train.param_dtype)


def _largest_unit(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Values of the largest unit within the layers."""
    sizes: dict[tuple[int | None, str], int] = {}
    for block in model.layers():
        for p in block.parameters:
            if placement.holds(p) and not is_outside(block, train):
                key = block.layer, module_of(p) if wraps_modules(train) else ""
                sizes[key] = sizes.get(key, 0) + placement.local_numel(p, p.numel)
    return max(sizes.values(), default=0)
