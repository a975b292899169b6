"""Megatron's buffers of weights and of main gradients, one of each for experts and one for the rest.

`DistributedDataParallel` makes them around a model whose weights are there: under the distributed optimizer a buffer of
the weights first, then that of the gradients, into which each weight is copied before its own tensor goes
(core 0.16 distributed/distributed_data_parallel.py, param_and_grad_buffer.py `_ParamAndGradBuffer`). The last pair is
therefore made while the weights that it is for are there twice. Adapters are the only trained weights of LoRA. Muon's
own way over ranks leaves weights where they are (optimizer/layer_wise_optimizer.py).

Not counted: 128 bytes of padding a weight, buckets padded to a multiple of the ranks.
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.frameworks import framework_of
from vramwise.models.model import Model
from vramwise.records import record
from vramwise.training.layout.parallel import Placement
from vramwise.training.model_states.trained import trained_tensors
from vramwise.training.resolved import ResolvedTrain


@record
class MainBuffer:
    """What a rank's buffers of experts, or of all other trained weights, take; `weights`: 0 where these stay alone."""

    of_experts: bool
    weights: int
    gradients: int


@lru_cache(maxsize=1024)
def main_buffers(model: Model, train: ResolvedTrain, placement: Placement) -> tuple[MainBuffer, ...]:
    """The buffers in the order in which they are made; none where the framework has no such."""
    if not framework_of(train).gradients.main_buffer or train.fsdp != "none":
        return ()
    found = []
    for of_experts in (False, True):
        weights = gradients = 0
        for tensor, base in trained_tensors(model, train):
            if placement.holds(base) and base.shard.startswith("expert") == of_experts:
                numel = placement.local_numel(base, tensor.numel)
                weights += numel * tensor.param_bytes
                gradients += numel * tensor.grad_bytes
        if gradients:
            moves = train.distributed_optimizer and train.optimizer != "muon"
            found.append(MainBuffer(of_experts, weights if moves else 0, gradients))
    return tuple(found)
