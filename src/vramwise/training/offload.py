"""What leaves the GPU when it is offloaded, and the host memory that it then takes on every node.

    ZeRO, optimizer     master weights, states, gradients in fp32 leave; 16-bit gradients follow bucket by bucket
    ZeRO-3, parameters  the 16-bit shards too                        DeepSpeed 0.19 zero/stage_1_and_2.py, stage3.py
    FSDP, parameters    shards, gradients and states: the optimizer steps on the CPU
                                                      torch 2.13 distributed/fsdp CPUOffload, CPUOffloadPolicy
    activations         what layers keep between forward and backward   torch autograd.graph.save_on_cpu

`nvme` keeps the same on disk. Through ZeRO-3 it takes host memory all the same: 4 pinned buffers of a sub-group's fp32
values for the optimizer, 5 of 10^8 weights, and up to 10^9 weights stay in memory (DeepSpeed 0.19 zero/stage3.py,
zero/offload_config.py, swap_tensor/optimizer_utils.py, swap_tensor/partitioned_param_swapper.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.scenario import TrainSettings
from vramwise.training.states import ModelStates, width

OPTIMIZER_BUFFERS = 4
WEIGHT_BUFFERS = 5
WEIGHTS_OF_A_BUFFER = 100 * 1_000_000
WEIGHTS_KEPT_IN_MEMORY = 1000 * 1_000_000


@dataclass(frozen=True, slots=True)
class Offloaded:
    """What a rank does not keep on its GPU."""

    weights: bool
    gradients: bool
    optimizer: bool
    activations: bool


def offloaded(train: TrainSettings) -> Offloaded:
    """What these settings move off the GPU."""
    params, optimizer = train.offload_params != "none", train.offload_optimizer != "none"
    by_fsdp = train.fsdp != "none" and params
    return Offloaded(
        weights=params,
        gradients=by_fsdp or (optimizer and train.zero_stage > 0),
        optimizer=optimizer or by_fsdp,
        activations=train.offload_activations != "none",
    )


def host_parts(states: ModelStates, train: TrainSettings, activations: int) -> dict[str, int]:
    """Bytes of host memory that one rank's offloaded parts take, by term."""
    away = offloaded(train)
    on_disk = {"nvme"}
    parts: dict[str, int] = {}
    weights = states.weights + states.frozen_weights
    if away.weights and train.offload_params not in on_disk:
        parts["weights"] = weights
    if train.zero_stage == 3 and train.offload_params in on_disk:
        each = width(train.param_dtype or "bf16")
        parts["weights"] = min(weights, WEIGHTS_KEPT_IN_MEMORY * each)
        parts["buffers of weights"] = WEIGHT_BUFFERS * WEIGHTS_OF_A_BUFFER * each
    if train.zero_stage == 3 and train.offload_optimizer in on_disk:
        parts["buffers of the optimizer"] = OPTIMIZER_BUFFERS * states.fp32_gradients
    if away.optimizer and train.offload_optimizer not in on_disk:
        parts["master weights"] = states.master
        parts["optimizer states"] = states.optimizer + states.paged_optimizer
    if away.gradients and train.offload_optimizer not in on_disk:
        narrow = width(train.grad_dtype or "fp32")
        parts["gradients"] = states.gradients * (width("fp32") // narrow if train.zero_stage else 1)
    if away.activations and train.offload_activations not in on_disk:
        parts["activations"] = activations
    return {name: size for name, size in parts.items() if size}
