"""What frameworks on transformers' Trainer share."""

from __future__ import annotations

from vramwise.frameworks.versions import followed
from vramwise.scenario import TrainSettings

BITSANDBYTES = ("nf4", "fp4", "int8")
ACCELERATE_WAITS_SINCE = (1, 11)


def waits_for_the_last(train: TrainSettings) -> bool:
    """Whether accelerate's `no_sync` keeps FSDP from reducing gradients before a step's last micro-batch.

    Trainer runs the others under it (transformers 5.23 trainer.py, before it accelerator.py `accumulate`); it does
    nothing for FSDP 2 before accelerate 1.11 (pull request 3762, October 2025).
    """
    if train.gradient_accumulation_steps == 1:
        return False
    if train.fsdp_version == 1:
        return True
    return (followed(train, "accelerate") or ACCELERATE_WAITS_SINCE) >= ACCELERATE_WAITS_SINCE
