"""LLaMA-Factory: Trainer with templates, adapters and collators of its own."""

from __future__ import annotations

from dataclasses import replace

from vramwise.frameworks.attention import attention_of_classes
from vramwise.frameworks.defaults import (
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    MASTERS_UNDER_ZERO,
    ZEROED_BEFORE_TORCH_2,
    Default,
)
from vramwise.frameworks.framework import (
    Casts,
    Command,
    Framework,
    GradientRules,
    Loss,
    Peft,
    Preference,
    Quantizing,
    Sharding,
    always,
)
from vramwise.frameworks.transformers import has_outer_units, waits_for_the_last
from vramwise.frameworks.unsloth import DEFAULTS as UNSLOTHS
from vramwise.scenario import TrainSettings

DEFAULTS = (
    MASTERS_UNDER_ZERO,
    Default("method=full", "param_dtype", "fp32",
            "LLaMA-Factory 0.9.5 model/adapter.py: cast_trainable_params_to_fp32"),
    Default("", "param_dtype", "bf16",
            "LLaMA-Factory 0.9.5 hparams/parser.py: compute_dtype bfloat16 with bf16, as in all of examples/"),
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    ZEROED_BEFORE_TORCH_2,
    Default("", "checkpointing", "full",
            "LLaMA-Factory 0.9.5 hparams/model_args.py: disable_gradient_checkpointing False"),
    Default("kernels=unsloth checkpointing=full", "offload_activations", "cpu",
            "LLaMA-Factory 0.8.3, 0.9.4 model/model_utils/unsloth.py: use_gradient_checkpointing unsloth"),
    # use_unsloth: FastLanguageModel's own forward, whose loss depends on Unsloth's version
    *(replace(row, when=f"kernels=unsloth {row.when}") for row in UNSLOTHS if row.key == "loss"),
)  # fmt: skip

_RUNS = ("train", "sft", "dpo", "rm", "chat", "api", "webchat", "export")  # launcher.py; v1: sft, dpo, rm


def _dpo(train: TrainSettings) -> Preference:
    """0.7.1 and 0.9.1 train/dpo/trainer.py `concatenated_forward`: `.logits.to(torch.float32)`, a softmax of them all,
    and both halves of the policy's are named until `get_batch_loss_metrics` returns."""
    return Preference(of_all=True, names_logits=True, upcasts=True)


RECORD = Framework(
    name="llamafactory",
    title="LLaMA-Factory",
    package="llamafactory",
    newest="0.9.5",
    commands=(
        Command("llamafactory", "llamafactory-cli", _RUNS, example="llamafactory-cli train"),
        Command("llamafactory", "lmf", _RUNS),
    ),
    image="hiyouga/llamafactory:latest",  # README.md, docker/docker-cuda
    defaults=DEFAULTS,
    trainer=True,
    zero_init=True,
    batches="conversations",  # `cutoff_len` cuts what is longer
    asks_for_reentry=always,  # 0.9.5 hparams/model_args.py use_reentrant_gc
    classes="as they are",
    attention=attention_of_classes,
    brings_masks=True,  # data/collator.py prepare_4d_attention_mask
    gradients=GradientRules(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    # Weights in 16 bits, and Trainer's bf16 or fp16 all the same: 0.8.3 model/patcher.py `init_kwargs["torch_dtype"] =
    # model_args.compute_dtype`, 0.9.4 model/loader.py the checkpoint's.
    # 0.7.1 to 0.9.4 hparams/parser.py `model_args.device_map`, model/adapter.py `cast_trainable_params_to_fp32`: only
    # ZeRO-3 keeps trained weights from becoming fp32 on the GPU before Trainer has them.
    casts=Casts(autocast="16-bit", loads_narrow=True, widens_before_zero=True),
    loss=Loss(chunks="tiles", fused_linear_is_ligers=True, preference=_dpo),
    quantizing=Quantizing(copies="fp32 under autocast"),  # 0.9.5 model/adapter.py casts all that trains
    peft=Peft(version=(0, 18), names_linear_layers=True),  # 0.9.5 asks for peft<=0.18.1; model/model_utils/misc.py
    sharding=Sharding(takes_zero=True, outer_units=has_outer_units, last_unit_stays=has_outer_units),
)
