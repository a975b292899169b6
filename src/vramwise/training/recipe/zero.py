"""DeepSpeed's ZeRO settings with every open one decided, and the buffers that each stage allocates.

    stage   while                        values                                   dtype
    1, 2    backward                     reduce_bucket_size, twice under          the weights'
                                         overlap_comm
    3       always                       reduce_bucket_size                       communication_data_type
    all     a bucket is reduced          a copy of the bucket, where its          the bucket's
                                         gradients go to several ranks
    2, 3    backward                     a gradient that is larger than the       the weights'
                                         bucket, until the next one is there
    2       since the first reduction    1/n of the gradients                     gradients'
    3       always                       1/n of the gradients                     gradients'
    all     optimizer step               its share once more, joined, then fp32   gradients', master's
    3       optimizer step               the same of one sub-group at a time

Source: DeepSpeed 0.19 zero/config.py (defaults), stage_1_and_2.py (`setup_buckets`, `reduce_ipg_grads`,
`copy_grads_in_partition`, `allreduce_bucket`), stage3.py (`_setup_for_real_optimizer`, `__add_grad_to_ipg_bucket`,
`_create_fp16_sub_groups`), comm/coalesced_collectives.py. The updated weights are gathered in place
(runtime/utils.py all_gather_into_tensor_dp_groups), so that allgather_bucket_size takes no memory, nor does
round_robin_gradients, which deals the same gradients out otherwise.

Trainer's configurations say "auto": reduce_bucket_size hidden², stage3_prefetch_bucket_size 0.9 · hidden²,
stage3_param_persistence_threshold 10 · hidden (transformers integrations/deepspeed.py trainer_config_finalize). What is
left open is taken as that under Hugging Face's trainers, and as DeepSpeed's default elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import followed
from vramwise.records import record
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.zero3.coordinator import Limits

BUCKET_NUMEL = 500_000_000
PREFETCH_NUMEL = 50_000_000
PERSISTENT_NUMEL = 100_000
LIVE_NUMEL = 1000 * 1_000_000
REUSE_NUMEL = 1000 * 1_000_000
SUB_GROUP_NUMEL = 1000 * 1_000_000


@record
class ZeroSettings:
    """The settings of ZeRO that buffers follow, in values."""

    reduce_bucket_size: int
    overlap_comm: bool
    contiguous_gradients: bool
    reduce_scatter: bool
    limits: Limits


COPIES_ALONE_SINCE = (0, 9)  # DeepSpeed 0.9.0 runtime/zero/partition_parameters.py NoGatherHandle; not in 0.8.3
OWN_LINEAR_SINCE = (0, 19, 4)
"""Pull request 8189: DeepSpeed's linear function for models that exist already, too."""


BUCKETS_WITH_FIRST_GRADIENT_SINCE = (0, 18, 3)
"""stage_1_and_2.py `setup_buckets`, of the hook on a weight's gradient; before, `backward` and `backward_prologue`."""


def buckets_come_first(train: ResolvedTrain) -> bool:
    """Whether stages 1 and 2 make their buckets before backward begins, so that they lie beside the logits."""
    newest = BUCKETS_WITH_FIRST_GRADIENT_SINCE
    return train.zero_stage in (1, 2) and (followed(train, "deepspeed") or newest) < newest


def buckets_stay(train: ResolvedTrain) -> bool:
    """Whether buckets wait for the micro-batch in which gradients are reduced: those of stage 1 do.

    They are released with it (stage_1_and_2.py `_release_ipg_buffers`; run in 0.19.3 and 0.19.8, two ranks).
    """
    return train.zero_stage == 1 and train.gradient_accumulation_steps > 1


def keeps_views(train: ResolvedTrain) -> bool:
    """Whether autograd keeps weights that stage 3 gathered: the model was made outside of `zero.Init`."""
    return train.zero_init is False and _leaves_linear(train)


def may_keep_views(train: ResolvedTrain) -> bool:
    """Whether it hangs on a script of which nobody said how it makes the model."""
    return train.zero_init is None and _leaves_linear(train) and not framework_of(train).zero_init


def copies_alone(train: ResolvedTrain) -> bool:
    """Whether a single rank copies stage 3's weights from where they lie, in place of gathering them."""
    return (followed(train, "deepspeed") or COPIES_ALONE_SINCE) >= COPIES_ALONE_SINCE


def _leaves_linear(train: ResolvedTrain) -> bool:
    """Whether torch's linear function stays where the model was made outside of `zero.Init`."""
    return train.zero_stage == 3 and (followed(train, "deepspeed") or OWN_LINEAR_SINCE) < OWN_LINEAR_SINCE


def zero_settings(train: ResolvedTrain, hidden_size: int) -> ZeroSettings:
    """The settings as DeepSpeed would have them; Trainer's `auto` follows the hidden size."""
    auto = framework_of(train).trainer
    square = hidden_size * hidden_size
    offloads = train.offload_optimizer != "none"
    return ZeroSettings(
        reduce_bucket_size=_first(train.reduce_bucket_size, square if auto else BUCKET_NUMEL),
        overlap_comm=train.zero_stage == 3 if train.overlap_comm is None else train.overlap_comm,
        # Stages 1 and 2 need it for offloading, whatever is asked for (stage_1_and_2.py).
        contiguous_gradients=train.contiguous_gradients is not False or (offloads and train.zero_stage < 3),
        reduce_scatter=train.reduce_scatter is not False,
        limits=Limits(
            prefetch_bucket_size=_first(
                train.stage3_prefetch_bucket_size, int(0.9 * square) if auto else PREFETCH_NUMEL
            ),
            param_persistence_threshold=_first(
                train.stage3_param_persistence_threshold, 10 * hidden_size if auto else PERSISTENT_NUMEL
            ),
            max_live_parameters=_first(train.stage3_max_live_parameters, LIVE_NUMEL),
            max_reuse_distance=_first(train.stage3_max_reuse_distance, REUSE_NUMEL),
            model_persistence_threshold=train.stage3_model_persistence_threshold,
        ),
    )


def _first(stated: int | None, default: int) -> int:
    return default if stated is None else stated


def sub_group_numel(train: ResolvedTrain) -> int:
    """Values that stage 3's optimizer steps at a time."""
    return _first(train.sub_group_size, SUB_GROUP_NUMEL)


def largest_sub_group(partitions: Iterable[int], sub_group_size: int) -> int:
    """Values of the largest sub-group: parameters in order, each group closed by the one that fills it."""
    sizes = list(partitions)
    if sub_group_size >= sum(sizes):
        return sum(sizes)
    largest = group = 0
    for size in sizes:
        group += size
        largest = max(largest, group)
        if group >= sub_group_size:
            group = 0
    return largest
