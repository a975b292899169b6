"""What leaves the GPU when it is offloaded, and the host memory that it then takes on every node.

    ZeRO, optimizer     master weights, states, gradients in fp32 leave; 16-bit gradients follow bucket by bucket
    ZeRO-3, parameters  the 16-bit shards too                        DeepSpeed 0.19 zero/stage_1_and_2.py, stage3.py
    FSDP, parameters    shards, gradients and states: the optimizer steps on the CPU
                                                      torch 2.13 distributed/fsdp CPUOffload, CPUOffloadPolicy
    activations         what layers keep between forward and backward   torch autograd.graph.save_on_cpu

`nvme` keeps the same on disk; what passes through host memory on the way is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from vramwise.scenario import TrainSettings
from vramwise.training.states import ModelStates, width


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
    if away.weights and train.offload_params not in on_disk:
        parts["weights"] = states.weights + states.frozen_weights
    if away.optimizer and train.offload_optimizer not in on_disk:
        parts["master weights"] = states.master
        parts["optimizer states"] = states.optimizer + states.paged_optimizer
    if away.gradients and train.offload_optimizer not in on_disk:
        narrow = width(train.grad_dtype or "fp32")
        parts["gradients"] = states.gradients * (width("fp32") // narrow if train.zero_stage else 1)
    if away.activations and train.offload_activations not in on_disk:
        parts["activations"] = activations
    return {name: size for name, size in parts.items() if size}
