"""ms-swift: Trainer with templates, tuners and mixed precision of its own."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.framework import Casts, Framework, GradientLife, Loss, Sharding, always
from vramwise.frameworks.trainer import waits_for_the_last

RECORD = Framework(
    name="ms-swift",
    title="ms-swift",
    package="ms-swift",
    trainer=True,
    batches="conversations",  # `max_length` cuts or drops what is longer
    asks_for_reentry=always,  # 4.6 trainers/mixin.py _fix_gradient_checkpointing, where FSDP or DeepSpeed shares states
    classes="transformers",
    attention=attention_of_classes,
    gradients=GradientLife(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    casts=Casts(autocast="16-bit"),  # weights in 16 bits, and Trainer's bf16 or fp16 all the same
    loss=Loss(chunks="tiles", fused_linear_is_ligers=True),
    sharding=Sharding(takes_zero=True),
)
