"""axolotl: Trainer with configurations, attention and checks of its own."""

from __future__ import annotations

from vramwise.frameworks.attention import WITHOUT_FLASH, WITHOUT_FLEX, attention_of_classes
from vramwise.frameworks.framework import Casts, Framework, GradientLife, Loss, Quantizing, Sharding
from vramwise.frameworks.trainer import BITSANDBYTES, waits_for_the_last
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings


def _asks_for_reentry(train: TrainSettings) -> bool:
    """axolotl 0.19 utils/config/__init__.py: use_reentrant, but for preferences and rewards."""
    return not train.extra_models


def _attention(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """`flex_attention` asks for flex attention, which some classes have that have no flash attention."""
    if train.attention == "flash" and model.config.model_type in WITHOUT_FLASH - WITHOUT_FLEX:
        return "flex"
    return attention_of_classes(given, train, model)


def _notes(train: TrainSettings) -> tuple[str, ...]:
    if not train.quantize_experts:
        return ()
    return (
        "fused experts are quantized, as axolotl's recipes ask for with quantize_moe_experts; "
        "without it they stay in 16 bits (quantize_experts false)",
    )


RECORD = Framework(
    name="axolotl",
    title="axolotl",
    package="axolotl",
    trainer=True,
    batches="conversations",  # `sequence_len` cuts or drops what is longer
    asks_for_reentry=_asks_for_reentry,
    classes="transformers",
    attention=_attention,
    notes=_notes,
    gradients=GradientLife(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    casts=Casts(autocast="16-bit"),  # weights in 16 bits, and Trainer's bf16 or fp16 all the same
    loss=Loss(chunks="tiles"),  # cut-cross-entropy is what it offers as fused-linear
    quantizing=Quantizing(experts_in=BITSANDBYTES),  # examples: quantize_moe_experts in all of them
    sharding=Sharding(takes_zero=True),
)
