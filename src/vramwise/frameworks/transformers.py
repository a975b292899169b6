"""transformers' own Trainer, and what stands on it without a name of its own (trl, peft).

What frameworks on transformers' Trainer share.
"""

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
from vramwise.frameworks.framework import (
    Casts,
    Command,
    Framework,
    GradientRules,
    Loss,
    Preference,
    Quantizing,
    Sharding,
    always,
)
from vramwise.frameworks.versions import followed, library_version, makes_caches, names, reaches
from vramwise.scenario import TrainSettings

BITSANDBYTES = ("nf4", "fp4", "int8")
ACCELERATE_WAITS_SINCE = (1, 11)
OUTER_UNITS_SINCE = (1, 14)
NO_CACHE_SINCE = (5, 0)


def waits_for_the_last(train: TrainSettings) -> bool:
    """Whether accelerate's `no_sync` keeps FSDP from reducing gradients before a step's last micro-batch.

    Trainer runs the others under it (transformers 5.23 trainer.py, before it accelerator.py `accumulate`); it does
    nothing for FSDP 2 before accelerate 1.11 (pull request 3762, October 2025).
    """
    if train.gradient_accumulation_steps == 1:
        return False
    if train.fsdp_version == 1:
        return True
    return (followed(train, "accelerate") or ACCELERATE_WAITS_SINCE) >= ACCELERATE_WAITS_SINCE


def has_outer_units(train: TrainSettings) -> bool:
    """Whether accelerate makes FSDP 2's units of the embedding and of the output layer, which stays whole: since 1.14.

    accelerate 1.14 and 1.15 utils/fsdp_utils.py fsdp2_prepare_model; 1.13 left both in the root unit.
    """
    return train.fsdp_version == 2 and (followed(train, "accelerate") or OUTER_UNITS_SINCE) >= OUTER_UNITS_SINCE


def caches_in_evaluation(train: TrainSettings) -> bool:
    """Whether Trainer's evaluations fill the cache that `config.use_cache` asks for: before transformers 5.

    transformers 4.38 to 4.57 modeling_llama.py turns it off where a checkpointed model trains, and trainer.py never;
    5.0 trainer.py sets `model.config.use_cache = args.use_cache`, False. trl's SFTTrainer hands `use_cache=False` over.
    """
    return library_version(train) < NO_CACHE_SINCE and not names(train, "trl")


def caches_in_training(train: TrainSettings) -> bool:
    """Whether the outputs that Trainer's `compute_loss` names until it returns have such a cache (frameworks/pytorch.py
    says in which versions classes make one)."""
    return caches_in_evaluation(train) and makes_caches(train)


_DPO_BY_VERSION = (  # trl's releases, trainer/dpo_trainer.py
    ((1, 15), Preference(tiles=True)),  # trainer/kernels/chunked_logprob.py
    ((1, 6), Preference(frames_stay=True, picks=True)),
    ((0, 29), Preference(frames_stay=True, picks=True, copies=True)),  # `.contiguous()` of `[..., :-1, :]`
    ((0, 15), Preference(picks=True)),  # selective_log_softmax
    ((0, 12), Preference(of_all=True, picks=True)),
    ((0, 9), Preference(of_all=True, names_logits=True, with_cross_entropy=True)),  # policy_nll_loss
    ((0,), Preference(of_all=True, names_logits=True)),  # get_batch_logps
)


def _dpo(train: TrainSettings) -> Preference:
    version = followed(train, "trl") or _DPO_BY_VERSION[0][0]
    return next(way for since, way in _DPO_BY_VERSION if version >= since)


def _takes_bf16(train: TrainSettings) -> bool:
    """TRL's configs set bf16 unless fp16 is set (trl 0.19 sft_config.py to 1.16 base_config.py `__post_init__`)."""
    return names(train, "trl") and reaches(followed(train, "trl"), (0, 19))


def _as_run(train: TrainSettings) -> str:
    """Its --bf16 and --fp16 are autocast and DeepSpeed's masters; weights and steps all in one dtype need neither."""
    version = f"Trainer {'.'.join(map(str, library_version(train)))}"
    kind, parted, _ = train.precision.partition("-")
    return f"{version} with --{'fp16' if kind == 'fp16' else 'bf16'}" if parted else version


DEFAULTS = (
    MASTERS_UNDER_ZERO,
    UPCAST_BY_FSDP,
    Default("names:trl trl>=0.29", "param_dtype", "fp32",
            "trl 0.29 to 1.16 trainer/utils.py create_model_from_path: dtype float32 unless told otherwise"),
    Default("transformers<5 method=full|freeze|lora", "param_dtype", "fp32",
            "transformers 4.57 modeling_utils.py from_pretrained: torch_dtype None is torch's own fp32"),
    Default("", "param_dtype", "checkpoint", "transformers 5.23 modeling_utils.py from_pretrained: dtype = auto"),
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    Default("names:trl trl<0.25 method=qlora fsdp=none zero_stage=0|1|2", "kbit_preparation", "true",
            "trl 0.12 to 0.24 trainer/sft_trainer.py, models/utils.py prepare_peft_model: peft's "
            "prepare_model_for_kbit_training, but for weights on the CPU or the meta device; 0.25 has one of its own, "
            "which widens norms alone"),
    Default("names:trl trl>=0.29 method=qlora", "lora_dtype", "bf16",
            "trl 0.29 to 1.16 trainer/sft_trainer.py: adapters on a quantized base"),
    Default("names:agilerl", "optimizer_impl", "foreach",
            "AgileRL 2.8 algorithms/core/optimizer_wrapper.py: torch.optim.AdamW(parameters, lr), whose own default "
            "that is"),
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    ZEROED_BEFORE_TORCH_2,
    Default("names:trl trl>=0.24", "checkpointing", "full",
            "trl 0.24 to 1.16 trainer/base_config.py (sft_config.py before): gradient_checkpointing True"),
    Default("names:trl trl>=1.16", "loss", "fused-linear",
            "trl 1.16 kernels/chunked_logprob.py: output layer and loss a tile at a time"),
)  # fmt: skip

RECORD = Framework(
    name="transformers",
    title="Trainer",
    package="transformers",
    newest="5.23",
    commands=(
        Command("trainer", "trl", ("sft", "dpo", "grpo", "kto", "reward", "rloo", "distillation"), example="trl sft"),
        Command("trainer", module="trl.scripts."),
        Command("agilerl", module="agilerl.train"),
    ),
    # TRL's: .github/workflows/docker-build.yml, whose docker/trl/Dockerfile installs trl[liger,peft,vlm]
    image="huggingface/trl:latest",
    image_runs="trl",
    image_lacks={"zero_stage": "deepspeed", "quantization": "bitsandbytes"},
    defaults=DEFAULTS,
    as_run=_as_run,
    trainer=True,
    caches_in_evaluation=caches_in_evaluation,
    caches_in_training=caches_in_training,
    batches="padded",
    classes="as they are",
    attention=attention_of_classes,
    exact=True,
    gradients=GradientRules(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    casts=Casts(autocast="quantized", emulates_bf16=_takes_bf16),
    loss=Loss(chunks="tiles", fused_linear_is_ligers=True, preference=_dpo),
    # transformers 5.23 distributed/fsdp.py is_fsdp_enabled; accelerate's cpu_ram_efficient_loading avoids it.
    quantizing=Quantizing(loads_whole=always),
    sharding=Sharding(takes_zero=True, outer_units=has_outer_units, last_unit_stays=has_outer_units),
    measured=True,
)
