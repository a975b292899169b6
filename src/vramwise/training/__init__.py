"""Training: the largest moment of an optimizer step.

A step's peak is the maximum over its moments (loss, gradient of the logits, backward of one layer, end of backward,
optimizer step), each with what is alive then. From below:

    layout           which part of the model a rank holds, and which layouts can run
    recipe           what the settings mean: versions, defaults, adapters, heads, images, masks
    model_states     weights, gradients, master copies and optimizer states by tensor
    activations      what layers keep and need for a moment, from the model's own operations
    exchange         gathered weights, buckets, offloading (zero3: what DeepSpeed's coordinator keeps gathered)
    step             the moments
    reserved_memory  what torch's allocator reserves for them

`answer` puts the result together, with the counters that tools print around tensors (`counters`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vramwise.hardware import Gpu
    from vramwise.models import Model
    from vramwise.result import Result
    from vramwise.scenario import Scenario

__all__ = ["estimate_training"]


def estimate_training(
    scenario: Scenario, model: Model, source: str, gpu: Gpu | None, *, replays: bool = True, limits: bool = True
) -> Result:
    """Memory of one training step on the rank that needs most.

    Quantities are bytes of one GPU: `peak_allocated` and `peak_reserved` as torch counts them, `nvidia_smi` with
    the CUDA context and NCCL, `total_needed` without fragmentation. Raises `ScenarioError` for settings that
    contradict the model. Without `replays` reserved memory is a calibrated ratio everywhere; without `limits` neither
    the largest micro-batch nor the longest sequence is searched for.
    """
    from vramwise.training.answer import estimate_training as answer

    return answer(scenario, model, source, gpu, replays=replays, limits=limits)
