"""What DeepSpeed's ZeRO keeps on a rank beside its model states (see `zero` for the rules and their sources).

What DeepSpeed's ZeRO takes to look at gradients: for their norm, and for infinities and NaNs.

    stage   what                     bytes a value    of which values                      when
    1, 2    norm, .double()          8                a rank's slice of one gradient       before the optimizer's step
    1, 2    search, to 0.19.5        11               the same                             before the norm
    1, 2    both, offloaded          8; 11            its slice; the whole gradient        when a bucket is reduced
    3       norm, .double()          8                a rank's part of one gradient        before the optimizer's step
    3       search                   2 + 1            its partition of all gradients       fp16: before the norm

The search (`_has_inf_or_nan`: float, isnan, isinf, logical_or, float) takes two scalars since 0.19.6. Stages 1 and 2
make it for fp16, since 0.19.3 for bf16 too, and always where the optimizer is offloaded (zero/stage_1_and_2.py
`set_norm_for_param_grad_in_gpu`, `update_overflow_tracker_for_param_grad`, `has_overflow_partitioned_grads_serial`,
`get_grad_norm_direct`; zero/stage3.py `has_overflow`; runtime/precision_config.py `check_grad_overflow`). An embedding
is the largest gradient, and whole in the slice of some rank where ranks are few: told is the need of the rank that
needs most.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from vramwise.frameworks.versions import followed
from vramwise.models.blocks import Parameter
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.exchange.offload import offloaded
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.states import quantizer, stored
from vramwise.training.model_states.trained import rounded, trained_tensors, width
from vramwise.training.recipe.gradient_life import gradient_life, reentrant
from vramwise.training.recipe.settings import execution
from vramwise.training.resolved import ResolvedTrain

if TYPE_CHECKING:
    from vramwise.training.recipe.zero import ZeroSettings
    from vramwise.training.zero3.coordinator import Gathered
    from vramwise.training.zero3.module_calls import Weight

NORM_ITEM_BYTES = 8
SEARCH_PIECES = (4, 1, 1, 1, 4)
PARTITION_SEARCH_ITEM_BYTES = 2 + 1
SEARCHED_WITHOUT_COPIES_SINCE = (0, 19, 6)
BF16_SEARCHED_SINCE = (0, 19, 3)
WEIGHTS_BACK_IN_16_BITS_SINCE = (0, 17)

Place = int | str
"""Where in backward: a layer's number, "head" or "embedding"."""


@record
class Check:
    """A bucket that is reduced when a gradient of `place` comes, or after backward (None): what a rank then needs.

    `alone`: bytes of the gradient, where it is too large for a bucket and lies beside it.
    """

    place: Place | None
    nbytes: int
    alone: int


def bytes_before_step(model: Model, train: ResolvedTrain, placement: Placement) -> int:
    """What the norm and the search take of what stands before the optimizer's step; 0 where they were made before."""
    numels = _local_numels(model, train, placement)
    if not train.zero_stage or not numels or offloaded(train).gradients or gradient_life(train).summed_in_fp32:
        return 0
    ranks = max(1, placement.step_shards)
    if train.zero_stage == 3:
        norm = rounded(NORM_ITEM_BYTES * -(-max(numels) // ranks))
        search = rounded(PARTITION_SEARCH_ITEM_BYTES * -(-sum(numels) // ranks))
        return max(norm, search) if train.param_dtype == "fp16" else norm
    searches = train.param_dtype == "fp16" or _deepspeed(train) >= BF16_SEARCHED_SINCE
    item = max(NORM_ITEM_BYTES, _search_item_bytes(train) if searches else 0)
    return rounded(item * max(_slices(numels, ranks)))


def checks_in_backward(
    model: Model, train: ResolvedTrain, placement: Placement, zero: ZeroSettings
) -> tuple[Check, ...]:
    """The reductions of offloading stages 1 and 2; stage 1's buckets are filled when backward is over."""
    if train.zero_stage not in (1, 2) or not offloaded(train).optimizer:
        return ()
    at_once = gradient_life(train).reduced_at_once
    places = [_place(base) for _, base in trained_tensors(model, train) if placement.holds(base)]
    sizes = _local_numels(model, train, placement)
    slices = _slices(sizes, max(1, placement.step_shards))
    arriving = list(zip(places, sizes, slices, strict=True))
    found: list[Check] = []
    bucket: list[tuple[int, int]] = []
    for place, size, own in reversed(arriving):
        if bucket and sum(numel for numel, _ in bucket) + size > zero.reduce_bucket_size:
            found.append(_check(place if at_once else None, bucket, train, zero))
            bucket = []
        bucket.append((size, own))
    return (*found, _check(None, bucket, train, zero)) if bucket else ()


def returned_weight_bytes(train: ResolvedTrain, master: int) -> int:
    """Offloaded master weights that come back in fp32 before they are cast (stage_1_and_2.py `step`, to 0.16)."""
    returns = train.zero_stage in (1, 2) and offloaded(train).optimizer
    return master if returns and _deepspeed(train) < WEIGHTS_BACK_IN_16_BITS_SINCE else 0


def pieces_in_turn(train: ResolvedTrain, numel: int) -> list[list[int]]:
    """What stages 1 and 2 make of an offloaded gradient, of which the rank has all: norm, search, fp32 for the host."""
    search = [] if _deepspeed(train) >= SEARCHED_WITHOUT_COPIES_SINCE else [piece * numel for piece in SEARCH_PIECES]
    return [[NORM_ITEM_BYTES * numel], search, [4 * numel]]


def _check(place: Place | None, bucket: list[tuple[int, int]], train: ResolvedTrain, zero: ZeroSettings) -> Check:
    search = _search_item_bytes(train)
    most = max(max(rounded(search * size), rounded(NORM_ITEM_BYTES * own)) for size, own in bucket)
    too_large = bucket[0][0] if bucket[0][0] > zero.reduce_bucket_size else 0
    return Check(place, most, rounded(too_large * width(train.param_dtype)))


def _place(base: Parameter) -> Place:
    return base.layer if base.layer is not None else "embedding" if base.part == "embedding" else "head"


def _search_item_bytes(train: ResolvedTrain) -> int:
    return 0 if _deepspeed(train) >= SEARCHED_WITHOUT_COPIES_SINCE else sum(SEARCH_PIECES)


def _deepspeed(train: ResolvedTrain) -> tuple[int, ...]:
    """The version that runs; the newest described where nobody said."""
    return followed(train, "deepspeed") or SEARCHED_WITHOUT_COPIES_SINCE


def _local_numels(model: Model, train: ResolvedTrain, placement: Placement) -> list[int]:
    pairs = trained_tensors(model, train)
    return [placement.local_numel(base, tensor.numel) for tensor, base in pairs if placement.holds(base)]


def _slices(numels: list[int], ranks: int) -> list[int]:
    """Of tensors that lie one after another and are cut for ranks, the most values of each that one rank has."""
    each, start = -(-sum(numels) // ranks), 0
    found = []
    for numel in numels:
        first = min(numel, each - start % each)
        found.append(max(first, min(each, numel - first)))
        start += numel
    return found


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
    from vramwise.training.recipe.zero import copies_alone, keeps_views
    from vramwise.training.zero3.coordinator import ViewsKept
    from vramwise.training.zero3.gathering import Gathering, gathered_by

    checkpointed = train.checkpointing == "full"
    return gathered_by(
        Gathering(
            model,
            tuple(_weights_of(model, train, placement)),
            tuple(_adapter_weights(model, train)),
            images=train.images_per_sequence > 0,
            input_gradients=train.method == "full" or train.checkpointing != "none",
            checkpointing=checkpointed,
            reentrant=reentrant(train),
            limits=zero.limits,
            ranks=placement.data_parallel,
            quantized=train.zero_quantized_weights,
            views=ViewsKept(checkpointed) if keeps_views(train) and placement.data_parallel > 1 else None,
            from_host=train.offload_params != "none",
            copies_alone=copies_alone(train),
        )
    )


def _weights_of(model: Model, train: ResolvedTrain, placement: Placement) -> Iterator[Weight]:
    """Every parameter of the model as stage 3 sees it on a rank, in their order."""
    from vramwise.training.zero3.module_calls import Weight

    compute = execution(train, model)
    size = width(compute.autocast or compute.param_dtype)
    rule = quantizer(model, train)
    for p in model.all_parameters:
        local, key = placement.local_numel(p, p.numel), p.tied_to or p.name
        trains = compute.trains(p.name) and not p.frozen
        if rule is None:
            yield Weight(key, local, size, trains, p.is_linear)
            continue
        nbytes = stored(p, local, train, rule)[0]
        if rule.quantizes(p.part, p.shape, p.is_linear):  # 4-bit values lie in 16-bit items, which stage 3 can cut
            yield Weight(key, nbytes // BF16_BYTES, BF16_BYTES, trains)
        else:
            yield Weight(key, local, nbytes // local, trains)


def _adapter_weights(model: Model, train: ResolvedTrain) -> Iterator[tuple[str, tuple[Weight, ...]]]:
    """The weights that are added beside a parameter, with its name."""
    if train.method not in ("lora", "qlora"):
        return
    from vramwise.training.recipe.adapters import adapters_of
    from vramwise.training.zero3.module_calls import Weight

    for adapter in adapters_of(model, train):
        yield (
            adapter.base.name,
            tuple(
                Weight(f"{adapter.module}.lora_{i}", prod(shape), width(train.lora_dtype), linear=True)
                for i, shape in enumerate(adapter.shapes)
            ),
        )
