"""litgpt: its own GPT and loops under Lightning Fabric."""

from __future__ import annotations

from vramwise.frameworks.defaults import Default
from vramwise.frameworks.framework import Casts, Command, Framework, GradientRules, Loss, Quantizing, always
from vramwise.frameworks.versions import described, stated, torch_version
from vramwise.scenario import TrainSettings


def _defers_reductions(train: TrainSettings) -> bool:
    """`fabric.no_backward_sync` (finetune/full.py, finetune/lora.py)."""
    return train.gradient_accumulation_steps > 1


def _longest_first(train: TrainSettings) -> bool:
    """lit-gpt's scripts put the longest sample into the very first micro-batch (finetune/lora.py `longest_seq_ix`).

    So a run goes out of memory at once if it does. What was released as litgpt asks for torch 2.2 and does so no more.
    """
    return not train.packing and torch_version(train) < (2, 2)


def _layers_version(train: TrainSettings) -> tuple[int, ...]:
    """Before litgpt, which asks for torch 2.2, there was lit-gpt, without versions."""
    return stated(train, "litgpt") or (described("litgpt") if torch_version(train) >= (2, 2) else ())


DEFAULTS = (
    Default("copies>1 zero_stage=0", "fsdp", "full-shard",
            "litgpt 0.5.13 finetune/full.py FSDPStrategy, finetune/lora.py ModelParallelStrategy with fully_shard"),
    Default("fsdp method=full", "fsdp_version", "1", "litgpt 0.5.13 finetune/full.py: lightning's FSDPStrategy"),
    Default("method=qlora", "precision", "bf16",
            "litgpt 0.5.13 finetune/lora.py: quantization is refused under mixed precision; config_hub: bf16-true"),
    Default("precision=bf16|fp16|fp32", "lora_dtype", "weights",
            "litgpt 0.5.13 finetune/lora.py: fabric.init_module makes adapters in the precision's dtype"),
    Default("method=qlora optimizer=adamw", "optimizer_impl", "for-loop",
            "litgpt 0.5.13 finetune/lora.py: bitsandbytes' PagedAdamW"),
    Default("gpus>1", "checkpointing", "full",
            "litgpt 0.5.13 finetune/full.py activation_checkpointing_policy={Block}, finetune/lora.py parallelize_fn"),
    Default("", "loss", "chunked", "litgpt 0.5.13 finetune/full.py: chunked_cross_entropy in 128 positions"),
    Default("", "clip_grad_norm", "false", "litgpt 0.5.13 finetune/full.py, finetune/lora.py clip nothing"),
    Default("modules=q_proj|v_proj", "lora_targets", "q_proj,v_proj",
            "litgpt 0.5.13 finetune/lora.py: lora_query and lora_value True, the others False"),
    Default("", "lora_dropout", "0.05", "litgpt 0.5.13 finetune/lora.py"),
)  # fmt: skip

RECORD = Framework(
    name="litgpt",
    title="litgpt",
    package="litgpt",
    newest="0.5.13",
    commands=(
        Command(
            "litgpt", "litgpt", ("finetune", "finetune_lora", "finetune_full", "pretrain"), example="litgpt finetune"
        ),
    ),
    defaults=DEFAULTS,
    longest_first=_longest_first,
    names_logits=always,  # finetune/lora.py fit
    own_layers="litgpt",
    own_layers_version=_layers_version,
    gradients=GradientRules(deferred=_defers_reductions, deferred_with_frozen=True),
    casts=Casts(emulates_bf16=always),  # 0.5.13 utils.py get_default_supported_precision
    loss=Loss(chunks="as they are"),  # utils.py chunked_cross_entropy
    # lightning 2.6 fabric/plugins/precision/bitsandbytes.py: every nn.Linear
    quantizing=Quantizing(head=True, keeps_originals=False),
    peft=None,
    replayed=False,
)
