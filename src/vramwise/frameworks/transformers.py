"""transformers' own Trainer, and what stands on it without a name of its own (trl, peft)."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.framework import Casts, Framework, GradientLife, Loss, Quantizing, Sharding
from vramwise.frameworks.trainer import waits_for_the_last

RECORD = Framework(
    name="transformers",
    title="Trainer",
    package="transformers",
    trainer=True,
    batches="padded",
    classes="transformers",
    attention=attention_of_classes,
    exact=True,
    gradients=GradientLife(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    casts=Casts(autocast="quantized"),
    loss=Loss(chunks="tiles", fused_linear_is_ligers=True),
    # transformers 5.23 distributed/fsdp.py is_fsdp_enabled; accelerate's cpu_ram_efficient_loading avoids it.
    quantizing=Quantizing(loads_whole=True),
    sharding=Sharding(takes_zero=True),
    measured=True,
)
