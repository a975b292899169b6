"""ms-swift: Trainer with templates, tuners and mixed precision of its own."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import (
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    MASTERS_UNDER_ZERO,
    UPCAST_BY_FSDP,
    ZEROED_BEFORE_TORCH_2,
    Default,
)
from vramwise.frameworks.framework import Casts, Command, Framework, GradientRules, Loss, Peft, Sharding, always
from vramwise.frameworks.transformers import has_outer_units, waits_for_the_last

DEFAULTS = (
    Default("zero checkpoint=fp16|fp32", "precision", "fp16-master",
            "ms-swift 4.6 arguments/base_args/model_args.py _init_mixed_precision: fp16 unless weights are bf16"),
    Default("checkpoint=fp16|fp32", "precision", "fp16-mixed",
            "ms-swift 4.6 arguments/base_args/model_args.py _init_mixed_precision"),
    MASTERS_UNDER_ZERO,
    UPCAST_BY_FSDP,
    Default("checkpoint=fp16 method=full", "param_dtype", "fp32",
            "ms-swift 4.6 pipelines/train/tuner.py: float16 weights that train become fp32"),
    Default("", "param_dtype", "checkpoint",
            "ms-swift 4.6 arguments/base_args/model_args.py: torch_dtype of the config"),
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    ZEROED_BEFORE_TORCH_2,
    Default("", "checkpointing", "full", "ms-swift 4.6 trainers/arguments.py: gradient_checkpointing True"),
    Default("", "lora_dropout", "0.05", "ms-swift 4.6 arguments/tuner_args.py"),
)  # fmt: skip

RECORD = Framework(
    name="ms-swift",
    title="ms-swift",
    package="ms-swift",
    newest="4.6",
    commands=(
        Command("swift", "swift", ("sft", "rlhf", "pt", "infer", "deploy", "rollout"), example="swift sft"),
        Command("swift", module="swift.cli."),
    ),
    defaults=DEFAULTS,
    trainer=True,
    zero_init=True,
    batches="conversations",  # `max_length` cuts or drops what is longer
    asks_for_reentry=always,  # 4.6 trainers/mixin.py _fix_gradient_checkpointing, where FSDP or DeepSpeed shares states
    classes="as they are",
    attention=attention_of_classes,
    gradients=GradientRules(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    # Weights in 16 bits, and Trainer's bf16 or fp16 all the same: 4.6 arguments/base_args/model_args.py, where bf16 is
    # on if the checkpoint's torch_dtype is bf16, and where it has none what torch says (model/utils.py).
    casts=Casts(autocast="16-bit", loads_narrow=True, emulates_bf16=always),
    # 4.6 sequence_parallel/utils.py ChunkedCrossEntropyLoss, by CELOSS_PARALLEL_SIZE
    loss=Loss(chunks="rows", fused_linear_is_ligers=True),
    peft=Peft(version=(0, 20), names_linear_layers=True),  # pipelines/train/tuner.py get_target_modules
    # 4.6 trainers/sequence_parallel: ulysses, and a ring where ranks are more than heads
    sharding=Sharding(
        takes_zero=True,
        outer_units=has_outer_units,
        last_unit_stays=has_outer_units,
        context_parallel_kind="ulysses",
        ring="uncounted",
    ),
)
