"""What transformers' checkpointing is besides recomputing: torch's reentrant kind, and inputs that want a gradient."""

from __future__ import annotations

from typing import Final

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.training.resolved import ResolvedTrain

CHECKPOINTS_WITHOUT_REENTRY_SINCE: Final = (5, 0)
"""modeling_utils.py gradient_checkpointing_enable: use_reentrant=False."""
INPUTS_WANTED_SINCE: Final = (5, 0)
"""There too: enable_input_require_grads, which 4.57.6 leaves to peft's users."""


def reentrant(train: ResolvedTrain) -> bool:
    """Whether full checkpointing runs torch's reentrant kind: transformers' default before version 5, or asked for."""
    framework = framework_of(train)
    if train.checkpointing != "full" or not framework.trainer:
        return False
    return framework.asks_for_reentry(train) or library_version(train) < CHECKPOINTS_WITHOUT_REENTRY_SINCE


def wants_gradients_of_inputs(train: ResolvedTrain) -> bool:
    """Whether embedded tokens want a gradient whatever is trained, so that backward goes through every layer.

    A script of peft's asks for it beside checkpointing; since transformers 5.0 checkpointing does so itself of a model
    that reads tokens.
    """
    if train.checkpointing == "none" or not framework_of(train).trainer:
        return False
    return train.method in ("lora", "qlora") or library_version(train) >= INPUTS_WANTED_SINCE
