"""llm-foundry: MPT and transformers' classes under Composer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.frameworks.defaults import Default
from vramwise.frameworks.framework import Casts, Command, Framework, Loss, always, never
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings

_OWN_NAMES = {"flash": "flash", "torch": "eager", "flex": "flex"}


def _attention(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """Its own blocks follow the config's `attn_impl` (models/layers/attention.py).

    Unasked it is flash (models/mpt/configuration_mpt.py).
    """
    if model.config.model_type != "mpt" or "attention" in given.explicit:
        return train.attention
    table: dict[str, Any] = model.config.values.get("attn_config") or {}
    return _OWN_NAMES.get(str(table.get("attn_impl", "flash")), train.attention)


DEFAULTS = (
    Default("optimizer=adamw", "optimizer_impl", "for-loop",
            "composer 0.32 optim/decoupled_weight_decay.py: decoupled_adamw of scripts/train/yamls steps one weight "
            "after another"),
    Default("fsdp", "checkpointing", "full",
            "llm-foundry scripts/train/yamls/finetune: activation_checkpointing: true under fsdp_config"),
    Default("", "attention", "flash",
            "llm-foundry scripts/train/yamls: attn_impl: flash, use_flash_attention_2: true"),
)  # fmt: skip

_FOUNDRY = Framework(
    name="llm-foundry",
    title="llm-foundry",
    package="llm-foundry",
    commands=(Command("llm_foundry", "composer", example="composer train.py"),),
    defaults=DEFAULTS,
    attention=_attention,
)

_MPT = replace(
    _FOUNDRY,
    casts=Casts(autocast="never"),  # its norms leave autocast (models/layers/norm.py)
    loss=Loss(one_kernel=True),  # models/mpt/modeling_mpt.py: flash-attn's cross entropy
)

RECORD = replace(
    _FOUNDRY,
    # models/hf/hf_causal_lm.py: transformers' classes with their loss, under composer's autocast (composer 0.32
    # core/precision.py); trainer/trainer.py `_train_microbatch`: `state.outputs` until the next ones are there
    classes="as they are",
    warms_up=never,  # models/hf/hf_base.py build_inner_model: from_pretrained on the CPU or the meta device
    names_logits=always,
    of_types={"mpt": _MPT},
)
