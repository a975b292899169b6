"""What leaves the GPU when it is offloaded, and the host memory that it then takes on every node.

    ZeRO, optimizer     master weights, states, gradients leave; 16-bit gradients follow bucket by bucket
    ZeRO-3, parameters  the 16-bit shards too                        DeepSpeed 0.19 zero/stage_1_and_2.py, stage3.py
    FSDP, parameters    shards, gradients and states: the optimizer steps on the CPU
                                                      torch 2.13 distributed/fsdp CPUOffload, CPUOffloadPolicy
    Megatron            what steps on the host, a share of the values: their optimizer states, and their master weights
                        too where the optimizer steps narrow; those on the GPU step fp32 copies that it makes
                        core 0.16 optimizer/cpu_offloading/hybrid_optimizer.py, distrib_optimizer.py
    activations         what layers keep between forward and backward   torch autograd.graph.save_on_cpu

On the host ZeRO keeps for a rank's share of the values:

    all stages    master weights, gradients in their dtype, optimizer states
    stages 1, 2   the 16-bit weights on their way back, one gradient of the largest weight, and, where gradients are
                  accumulated, these in 16 bit
    stage 3       the gradients in the dtype in which they are accumulated; offloaded weights

Its page-locked blocks, all but master weights of stage 3 and optimizer states, are rounded up to a power of two (torch
2.13 ATen/core/CachingHostAllocator.h, pinned_max_round_threshold). Without `offload_pin_memory` stage 3 page-locks its
weights only, the others nothing.

`nvme` keeps the same on disk; stages 1 and 2 know the host only. Through ZeRO-3 it takes host memory all the same:
stage 3's accumulated gradients, 4 buffers of a sub-group's fp32 values for the optimizer, 5 of 10^8 weights, up to 10^9
weights that stay in memory, and the weights of a sub-group where more are on disk (zero/offload_config.py,
swap_tensor/optimizer_utils.py, swap_tensor/partitioned_param_swapper.py `reserve_partitioned_swap_space`).
"""

from __future__ import annotations

from vramwise.frameworks import framework_of
from vramwise.records import record
from vramwise.training.model_states.states import ModelStates, master_bytes, steps_narrow
from vramwise.training.model_states.trained import width
from vramwise.training.resolved import ResolvedTrain

OPTIMIZER_BUFFERS = 4
WEIGHT_BUFFERS = 5
WEIGHTS_OF_A_BUFFER = 100 * 1_000_000
WEIGHTS_KEPT_IN_MEMORY = 1000 * 1_000_000


@record
class Offloaded:
    """What a rank does not keep on its GPU."""

    weights: bool
    gradients: bool
    optimizer: bool
    activations: bool


def offloaded(train: ResolvedTrain) -> Offloaded:
    """What these settings move off the GPU."""
    params, optimizer = train.offload_params != "none", train.offload_optimizer != "none"
    by_fsdp = train.fsdp != "none" and params
    return Offloaded(
        weights=params and train.zero_stage not in (1, 2),  # DeepSpeed offloads parameters in stage 3 alone
        gradients=by_fsdp or (optimizer and train.zero_stage > 0),
        optimizer=optimizer or by_fsdp,
        activations=train.offload_activations != "none",
    )


def on_gpu(states: ModelStates, train: ResolvedTrain) -> tuple[int, int]:
    """Bytes of master weights and of optimizer states that a rank keeps on its GPU.

    Megatron's HybridDeviceOptimizer copies whole tensors to the host until its share is reached; master weights that
    the distributed optimizer made before it (all but those of a narrow step) stay where they are.
    """
    if not offloaded(train).optimizer:
        return states.master, states.optimizer
    if not _is_hybrid(train):
        return 0, 0
    left = 1 - train.offload_optimizer_fraction
    master = _fp32_copies(states, train)
    return (round(left * master) if steps_narrow(train) else master), round(left * states.optimizer)


def _is_hybrid(train: ResolvedTrain) -> bool:
    return framework_of(train).gradients.main_buffer and train.zero_stage == 0 and train.fsdp == "none"


def _fp32_copies(states: ModelStates, train: ResolvedTrain) -> int:
    """Bytes of fp32 copies of all that a rank's optimizer steps (`param_update_in_fp32`)."""
    return states.master * width("fp32") // master_bytes(train)


def host_parts(states: ModelStates, train: ResolvedTrain, activations: int, staged: int = 0) -> dict[str, int]:
    """Bytes of host memory that one rank's offloaded parts take, by term; `staged`: a gradient on its way to it."""
    parts = _zero_parts(states, train, staged) if train.zero_stage else _other_parts(states, train)
    if offloaded(train).activations and train.offload_activations != "nvme":
        parts["activations"] = activations
    return {name: size for name, size in parts.items() if size}


def _other_parts(states: ModelStates, train: ResolvedTrain) -> dict[str, int]:
    away = offloaded(train)
    parts: dict[str, int] = {}
    if away.weights and train.offload_params != "nvme":
        parts["weights"] = states.weights + states.frozen_weights
    if away.optimizer and _is_hybrid(train):
        share = train.offload_optimizer_fraction
        copies = round(share * _fp32_copies(states, train))
        parts |= {"master weights": copies, "gradients": copies, "optimizer states": round(share * states.optimizer)}
    elif away.optimizer and train.offload_optimizer != "nvme":
        parts["master weights"] = states.master
        parts["optimizer states"] = states.optimizer + states.paged_optimizer
    if away.gradients and train.offload_optimizer != "nvme":
        parts["gradients"] = states.gradients
    return parts


def _zero_parts(states: ModelStates, train: ResolvedTrain, staged: int) -> dict[str, int]:
    """ZeRO's host memory; `pinned` are blocks that torch's pinned allocator rounds up."""
    parts: dict[str, int] = {}
    pinned: list[int] = []
    each, stage = width(train.param_dtype), train.zero_stage
    locks = train.offload_pin_memory is not False
    if stage == 3 and train.offload_params != "none":
        parts |= _offloaded_weights(states, train, each)
        pinned.append(parts["weights"])
    if train.offload_optimizer == "nvme" and stage == 3:
        count = _first(train.offload_optimizer_buffer_count, OPTIMIZER_BUFFERS)
        parts |= {"buffers of the optimizer": count * states.fp32_gradients, "accumulated gradients": states.gradients}
        pinned += [states.gradients] * locks
    elif train.offload_optimizer != "none":
        wide = states.master or states.gradients
        parts |= {"master weights": states.master, "optimizer states": states.optimizer + states.paged_optimizer}
        parts["gradients"] = wide
        if stage == 3:
            parts["accumulated gradients"] = states.gradients
            pinned += [wide, states.gradients] * locks
        else:
            narrow = wide // width(train.master_dtype or "fp32") * each
            parts["16-bit weights on their way back"] = narrow
            parts["a gradient on its way"] = staged
            pinned += [states.master, wide, narrow, staged] * locks
            if train.gradient_accumulation_steps > 1:
                parts["accumulated gradients"] = narrow
    parts["rounding of page-locked blocks"] = sum(power_of_two(size) - size for size in pinned)
    return parts


def _offloaded_weights(states: ModelStates, train: ResolvedTrain, each: int) -> dict[str, int]:
    weights = states.weights + states.frozen_weights
    if train.offload_params == "cpu":
        return {"weights": weights}
    kept = _first(train.offload_params_max_in_cpu, WEIGHTS_KEPT_IN_MEMORY) * each
    size = _first(train.offload_params_buffer_size, WEIGHTS_OF_A_BUFFER) * each
    sub_group = states.flat_gradients // width(train.grad_dtype) * each
    return {
        "weights": min(weights, kept),
        "buffers of weights": _first(train.offload_params_buffer_count, WEIGHT_BUFFERS) * size,
        "weights of a sub-group": sub_group if weights > kept else 0,
    }


def _first(stated: int | None, default: int) -> int:
    return default if stated is None else stated


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below a size."""
    return 1 << (size - 1).bit_length() if size > 0 else 0
