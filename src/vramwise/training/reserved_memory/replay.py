"""What streams have reserved after a training step's first steps: for which settings it is replayed, and the replay."""

from __future__ import annotations

from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.training.activations.block_ends import streams_of
from vramwise.training.activations.sizes import StepShape
from vramwise.training.exchange.offload import offloaded
from vramwise.training.exchange.units import wraps_modules
from vramwise.training.layout.parallel import ALONE, Placement
from vramwise.training.recipe.gradient_life import gradient_life
from vramwise.training.reserved_memory.in_order import replay_in_order
from vramwise.training.reserved_memory.scripts import blocks_run
from vramwise.training.reserved_memory.step_replay import Replayed, StepReplay, has_main_buffers
from vramwise.training.reserved_memory.traces import has_one_order
from vramwise.training.resolved import ResolvedTrain
from vramwise.training.zero3 import NO_LAG, Lag


def is_replayed(train: ResolvedTrain, placement: Placement) -> bool:
    """Whether the replay has everything that allocates under these settings."""
    away, cut = offloaded(train), placement.cut
    if train.extra_models or not framework_of(train).replayed:
        return False
    if has_main_buffers(train):
        from vramwise.training.reserved_memory import megatron

        return megatron.is_described(train, placement)
    if gradient_life(train).released or away.activations or placement.stages > 1:
        return False
    if (cut.expert_parallel_size > 1 or cut.tensor_parallel_size > 1) and (
        placement.weight_shards == 1 or train.fsdp_version != 2
    ):  # what torch's tensor and expert parallelism go with
        return False
    if train.zero_stage:
        from vramwise.training.reserved_memory import stage_3, stages_1_2

        return stage_3.is_described(train, placement) or stages_1_2.is_described(train)
    if train.master_dtype:
        return False
    if placement.weight_shards > 1:
        if wraps_modules(train):  # blocks are what a replay gathers
            return False
        return train.fsdp in ("full-shard", "shard-grad-op")
    if train.expandable_segments or train.context_parallel_size > 1:
        return False
    moved = away.weights or away.gradients or away.optimizer
    return not moved and train.fsdp == "none" and not train.distributed_optimizer


def runs_one_by_one(shape: StepShape, model: Model, train: ResolvedTrain) -> bool:
    """Whether what a pass runs are the model's blocks, one by one, and every gradient is played as it comes.

    Where one waits for another use of its weight, and main gradients are there, it is not.
    """
    waits = has_main_buffers(train) and any(parameter.tied_to for parameter in model.all_parameters)
    return not waits and streams_of(blocks_run(model, train), len(shape.recorded.runs)) is not None


@lru_cache(maxsize=4096)
def replay(
    model: Model, train: ResolvedTrain, batch: int, sequence: int, accumulating: bool, workspace_bytes: int,
    capacity_bytes: int | None = None, lengths: tuple[int, ...] = (), placement: Placement = ALONE, lag: Lag = NO_LAG,
    warm_up: int = 0,
) -> Replayed:  # fmt: skip
    """The first steps of one rank (step_replay.py).

    `workspace_bytes`: what cuBLAS keeps for the threads of forward and backward together. `capacity_bytes`: what torch
    can reserve; where that was full, one more step is played, after which what was given back has settled. `lengths`:
    those of steps one after another, the last of them `sequence`. `lag`: of the card behind its host. `warm_up`: bytes
    of the block that was allocated before the weights (loading.py).
    """
    sizes = batch, sequence, accumulating, workspace_bytes
    if has_one_order(train) and not lengths and not has_main_buffers(train):
        return replay_in_order(model, train, *sizes, capacity_bytes, placement, warm_up)
    return StepReplay(model, train, *sizes, capacity_bytes, lengths, placement, lag, warm_up).run()
