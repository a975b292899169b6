"""What DeepSpeed's ZeRO keeps on a rank beside its model states (see `zero` for the rules and their sources)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import quantizer, rounded, stored, trained_tensors, width
from vramwise.training.recipe.adapters import adapters
from vramwise.training.recipe.peft_targets import peft_targets
from vramwise.training.recipe.settings import execution, reentrant
from vramwise.training.recipe.zero import ZeroSettings, keeps_views
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.zero3 import Gathered, ViewsKept, Weight, calls_of_step, gathered, module_tree

BF16_BYTES = 2


def bucket_bytes(train: ResolvedTrain, zero: ZeroSettings) -> int:
    """The buffers into which gradients are copied: two where stages 1 and 2 reduce one while they fill the other."""
    if not zero.contiguous_gradients:
        return 0
    own = train.param_dtype
    item = width(train.communication_data_type or own) if train.zero_stage == 3 else width(own)
    count = 2 if zero.overlap_comm and train.zero_stage < 3 else 1
    return count * rounded(zero.reduce_bucket_size * item)


def reduction_bytes(model: Model, train: ResolvedTrain, placement: Placement, zero: ZeroSettings) -> int:
    """What stands beside the buckets while gradients are reduced.

    A bucket is copied into the order of the ranks that its gradients go to: in stage 3 always, before it only where
    there is another rank. A layer's gradient that no bucket holds waits for the next one.
    """
    sizes = [
        (placement.local_numel(base, tensor.numel), base.layer)
        for tensor, base in trained_tensors(model, train)
        if placement.holds(base)
    ]
    item = width(train.param_dtype)
    held = min(zero.reduce_bucket_size, sum(size for size, _ in sizes))
    copies = zero.reduce_scatter and (train.zero_stage == 3 or placement.data_parallel > 1)
    partitions = train.zero_stage >= 2
    waiting = max((n for n, layer in sizes if layer is not None and n > zero.reduce_bucket_size), default=0)
    return rounded(held * item if copies else 0) + rounded(waiting * item if partitions else 0)


def offload_staging_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """Stages 1 and 2 send gradients to the host through a buffer of the largest parameter (stage_1_and_2.py)."""
    if train.zero_stage not in (1, 2) or not offloaded(train).optimizer:
        return 0
    numels = (placement.local_numel(base, tensor.numel) for tensor, base in trained_tensors(model, train))
    return rounded(max(numels, default=0) * width(train.param_dtype))


def secondary_bytes(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """ZeRO++: the second copy of the weights, which a group of ranks shares (hpZ, arXiv 2306.10209)."""
    ranks = train.zero_hpz_partition_size
    if train.zero_stage != 3 or ranks == 1:
        return 0
    rule = quantizer(model, train)
    held = (p for p in model.parameters if p.tied_to is None and placement.holds(p))
    return sum(rounded(stored(p, placement.local_numel(p, p.numel), train, rule, ranks)[0]) for p in held)


def gathered_weights(model: Model, train: ResolvedTrain, placement: Placement, zero: ZeroSettings) -> Gathered | None:
    """What stage 3 keeps gathered through a step; None where a single rank has its weights on the GPU anyway."""
    if train.zero_stage != 3 or (placement.data_parallel == 1 and not offloaded(train).weights):
        return None
    compute = execution(train, model)
    size = width(compute.autocast or compute.param_dtype)
    rule = quantizer(model, train)

    def weight_of(p: Parameter) -> Weight:
        local, key = placement.local_numel(p, p.numel), p.tied_to or p.name
        trains = compute.trains(p.name) and not p.frozen
        if rule is None:
            return Weight(key, local, size, trains, p.is_linear)
        nbytes = stored(p, local, train, rule)[0]
        packed = rule.quantizes(p.part, p.shape, p.is_linear)  # 4-bit values lie in 16-bit items, which stage 3 can cut
        return (
            Weight(key, nbytes // BF16_BYTES, BF16_BYTES, trains)
            if packed
            else (Weight(key, local, nbytes // local, trains))
        )

    added: dict[str, Sequence[Weight]] = {}
    if train.method in ("lora", "qlora"):
        for adapter in adapters(model, peft_targets(model, train), train.lora_rank, dora=train.dora):
            added[adapter.base.name] = [
                Weight(f"{adapter.module}.lora_{i}", prod(shape), width(train.lora_dtype), linear=True)
                for i, shape in enumerate(adapter.shapes)
            ]
    images, inputs = train.images_per_sequence > 0, train.method == "full" or train.checkpointing != "none"
    root = module_tree(model, weight_of, lambda p: added.get(p.name, ()), images=images, input_gradients=inputs)
    again = reentrant(train)
    checkpointed = train.checkpointing == "full"
    calls, in_forward = calls_of_step(root, checkpointing=checkpointed, reentrant=again)
    views = ViewsKept(checkpointed) if keeps_views(train) and placement.data_parallel > 1 else None
    return gathered(
        calls, in_forward, zero.limits, placement.data_parallel, quantized=train.zero_quantized_weights, views=views
    )
