"""DeepSpeed's engine around transformers' classes, with a loop of one's own."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import ADAPTERS_CAST_TO_BF16, ADAPTERS_CAST_TO_FP16, Default
from vramwise.frameworks.framework import Casts, Command, Framework, Sharding
from vramwise.scenario import TrainSettings


def _notes(train: TrainSettings) -> tuple[str, ...]:
    if not train.precision.endswith("-mixed") or train.method != "full":
        return ()
    narrow = train.precision.removesuffix("-mixed")
    return (
        f"{train.precision} keeps fp32 weights under autocast; with {narrow} enabled in DeepSpeed's own "
        f"configuration weights are {narrow} and a master copy fp32: --precision {narrow}-master",
    )


DEFAULTS = (
    Default("", "precision", "bf16-master",
            "DeepSpeed 0.19 runtime/engine.py _configure_distributed_model: module.bfloat16(); bf16_optimizer.py and "
            "zero/ keep fp32 copies"),
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    Default("", "optimizer_impl", "fused", "DeepSpeed 0.19 runtime/engine.py _configure_basic_optimizer: FusedAdam"),
)  # fmt: skip

RECORD = Framework(
    name="deepspeed",
    title="deepspeed",
    package="deepspeed",
    newest="0.19",
    commands=(Command("openrlhf", module="openrlhf.cli.train_"),),
    defaults=DEFAULTS,
    batches="padded",
    own_optimizer=True,
    classes="as they are",
    attention=attention_of_classes,
    notes=_notes,
    casts=Casts(autocast="never"),  # 0.19 runtime/engine.py _configure_distributed_model casts the module
    sharding=Sharding(shares="zero", takes_zero=True, context_parallel_kind="ulysses", ring="uncounted"),
)
