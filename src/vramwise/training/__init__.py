"""Training: the largest moment of an optimizer step.

A step's peak is the maximum over its moments (loss, gradient of the logits, backward of one layer, end of backward,
optimizer step), each with what is alive then: weights, gradients, master copies and optimizer states by tensor
(`states`), activations and live sets from the model's own operations (`sizes`), buffers of parallelism
(`communication`), and the counters that tools print around them (`counters`).
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
    scenario: Scenario, model: Model, source: str, gpu: Gpu | None, *, replays: bool = True
) -> Result:
    """Memory of one training step on the rank that needs most.

    Quantities are bytes of one GPU: `peak_allocated` and `peak_reserved` as torch counts them, `nvidia_smi` with
    the CUDA context and NCCL, `total_needed` without fragmentation. Raises `ScenarioError` for settings that
    contradict the model. Without `replays` reserved memory is a calibrated ratio everywhere.
    """
    from vramwise.training.answer import estimate_training as answer

    return answer(scenario, model, source, gpu, replays=replays)
