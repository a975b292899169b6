"""The life of a gradient under given settings: when it comes, whether it stays, who takes it and when.

What transformers' checkpointing is besides recomputing: torch's reentrant kind, and inputs that want a gradient.
"""

from __future__ import annotations

from typing import Final

from vramwise.frameworks import framework_of
from vramwise.frameworks.versions import library_version
from vramwise.records import record
from vramwise.training.resolved import ResolvedTrain


@record
class GradientLife:
    """What becomes of each gradient of a step."""

    released: bool
    """Its weight is stepped as soon as it is there, and then it goes (LOMO knows no other way)."""
    stays: bool
    """It is there before a micro-batch's backward pass begins: earlier micro-batches left it, Megatron's main_grad
    buffer or ZeRO-3's partition lives from the start, or zero_grad only zeroes it."""
    reduced_at_once: bool
    """ZeRO takes it as it comes; stage 1 under overlap_comm does so in a step's last micro-batch."""
    deferred: bool
    """FSDP reduces it in a step's last micro-batch alone, and keeps it whole until then."""
    summed_in_fp32: bool
    """Stage 1 is DeepSpeed's BF16_Optimizer, which adds it to one of fp32 that it keeps whole.

    So it is with bf16 weights and `grad_accum_dtype` fp32 (0.19 runtime/engine.py `_do_optimizer_sanity_check`)."""

    @property
    def is_added(self) -> bool:
        """A new gradient is added to one that is there, or goes at once, as into the buckets of ZeRO-2."""
        return self.stays or self.released or self.reduced_at_once


def gradient_life(train: ResolvedTrain) -> GradientLife:
    """The life of gradients under these (resolved) settings; sizes play no part in it."""
    rules = framework_of(train).gradients
    accumulates = train.gradient_accumulation_steps > 1
    released = train.gradient_release or train.optimizer == "lomo"
    dtypes = train.param_dtype, train.grad_dtype
    summed_in_fp32 = train.zero_stage == 1 and dtypes == ("bf16", "fp32") and train.method == "full"
    from_start = rules.main_buffer or train.zero_stage == 3 or summed_in_fp32
    last_alone = train.zero_stage == 1 and bool(train.overlap_comm) and not accumulates
    return GradientLife(
        released=released,
        stays=not released and (accumulates or from_start or not train.set_to_none),
        reduced_at_once=train.zero_stage >= 2 or (last_alone and not summed_in_fp32),
        deferred=train.fsdp != "none" and rules.deferred(train),
        summed_in_fp32=summed_in_fp32,
    )


def adds_into_main_gradients(train: ResolvedTrain) -> bool:
    """Whether products of the layers add to gradients that are there, without one of their own."""
    return framework_of(train).gradients.main_buffer and train.method in ("full", "freeze") and train.fsdp == "none"


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


def wants_gradients_of_patches(train: ResolvedTrain, head: str) -> bool:
    """Whether patches of images want one too, so that backward goes through a frozen tower.

    Since transformers 5.0 it is asked of every model inside a model that names its input embeddings (modeling_utils.py
    enable_input_require_grads; 4.57.6 asks the outer model alone), by checkpointing itself of one that reads tokens.
    """
    if library_version(train) < INPUTS_WANTED_SINCE:
        return False
    adapts = train.method in ("lora", "qlora")
    return wants_gradients_of_inputs(train) and (adapts or head != "image-classification")


def wants_gradients_of_inputs(train: ResolvedTrain, stacks: int = 1) -> bool:
    """Whether embedded tokens want a gradient whatever is trained, so that backward goes through every layer.

    A script of peft's asks for it beside checkpointing; since transformers 5.0 checkpointing does so itself of a model
    that reads tokens. Of an encoder and a decoder it asks both since then; before, the one table that they share, which
    neither runs (modeling_utils.py enable_input_require_grads, 4.57.6 and 5.0).
    """
    if train.checkpointing == "none" or not framework_of(train).trainer:
        return False
    if stacks > 1 and library_version(train) < INPUTS_WANTED_SINCE:
        return False
    return train.method in ("lora", "qlora") or library_version(train) >= INPUTS_WANTED_SINCE
