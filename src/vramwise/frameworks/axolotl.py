"""axolotl: Trainer with configurations, attention and checks of its own."""

from __future__ import annotations

from vramwise.frameworks.attention import attention_of_classes, types_without
from vramwise.frameworks.defaults import ADAPTERS_CAST_TO_BF16, ADAPTERS_CAST_TO_FP16, MASTERS_UNDER_ZERO, Default
from vramwise.frameworks.framework import (
    Casts,
    Command,
    Framework,
    GradientRules,
    Loss,
    Peft,
    Quantizing,
    Sharding,
    always,
)
from vramwise.frameworks.transformers import BITSANDBYTES, waits_for_the_last
from vramwise.frameworks.versions import library_version, month_named, reaches, stated
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings

OWN_FSDP_2_SINCE = (2025, 7)


def _asks_for_reentry(train: TrainSettings) -> bool:
    """axolotl 0.19 utils/config/__init__.py: use_reentrant, but for preferences and rewards."""
    return not train.extra_models


def _attention(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """`flex_attention` asks for flex attention, which some classes have that have no flash attention."""
    version = library_version(train)
    with_flex_alone = types_without("flash", version) - types_without("flex", version)
    if train.attention == "flash" and model.config.model_type in with_flex_alone:
        return "flex"
    return attention_of_classes(given, train, model)


def _notes(train: TrainSettings) -> tuple[str, ...]:
    if not train.quantize_experts:
        return ()
    return (
        "fused experts are quantized, as axolotl's recipes ask for with quantize_moe_experts; "
        "without it they stay in 16 bits (quantize_experts false)",
    )


def _warms_up(train: TrainSettings) -> bool:
    """axolotl 0.19 monkeypatch/moe_quant.py patch_moe_quantization_on_load: no caching_allocator_warmup."""
    return not train.quantize_experts


def _loads_whole(train: TrainSettings) -> bool:
    """Since pull request 2760 of July 2025 (0.12): loaders/model.py gives each rank's own GPU as device_map."""
    month = month_named(train)
    return month >= OWN_FSDP_2_SINCE if month else reaches(stated(train, "axolotl"), (0, 12))


_IN_KERNELS = "method=lora|qlora quantization=None|nf4|nf4-dq|fp4 dora=False extra_models=()"
_SINCE_MAY_2025 = "axolotl>=0.10 month>=2025-05 lora_dropout=0|0.0"
_WITH_DROPOUT = "axolotl>=0.16 month>=2026-04"
_ENABLES_KERNELS = (
    "axolotl 0.10 to 0.18 utils/schemas/config.py check_auto_enable_lora_kernels: on one GPU, or without FSDP 1; "
    "monkeypatch/lora_kernels.py: with dropout since 0.16"
)


DEFAULTS = (
    MASTERS_UNDER_ZERO,
    Default("fsdp=full-shard|shard-grad-op|hybrid-shard fsdp_version=1 method=full", "param_dtype", "fp32",
            "accelerate 1.15 accelerator.py prepare_model; axolotl 0.19 monkeypatch/accelerate/fsdp2.py leaves FSDP "
            "2's weights as they are"),
    Default("", "param_dtype", "bf16",
            "axolotl 0.19 utils/config/__init__.py: torch_dtype bfloat16 where bf16 is auto or on"),
    Default("method=qlora fsdp=none zero_stage=0|1|2", "kbit_preparation", "true",
            "axolotl 0.16 loaders/model.py _prepare_model_for_quantization: peft's prepare_model_for_kbit_training; "
            "_convert_embedding_modules_dtype takes norms, embedding and output layer back"),
    ADAPTERS_CAST_TO_BF16,
    ADAPTERS_CAST_TO_FP16,
    Default("optimizer=adamw", "optimizer_impl", "fused",
            "axolotl 0.19 utils/schemas/training.py: optimizer adamw_torch_fused"),
    Default("axolotl>=0.5", "expandable_segments", "true",
            "axolotl 0.5 utils/__init__.py set_pytorch_cuda_alloc_conf"),
    *(Default(f"{_IN_KERNELS} {since} {where}", "kernels", "axolotl", _ENABLES_KERNELS)
      for since in (_SINCE_MAY_2025, _WITH_DROPOUT)
      for where in ("gpus=1", "fsdp=none", "fsdp_version=2")),
)  # fmt: skip

RECORD = Framework(
    name="axolotl",
    title="axolotl",
    package="axolotl",
    newest="0.19",
    commands=(
        Command("axolotl", "axolotl", ("train",), example="axolotl train"),
        Command("axolotl", module="axolotl.cli.train"),
    ),
    image="axolotlai/axolotl:main-latest",  # docs/docker.qmd
    defaults=DEFAULTS,
    trainer=True,
    zero_init=True,
    batches="conversations",  # `sequence_len` cuts or drops what is longer
    asks_for_reentry=_asks_for_reentry,
    classes="as they are",
    warms_up=_warms_up,
    attention=_attention,
    swaps_in={"liger": "axolotl-liger"},
    notes=_notes,
    counts_anew=True,  # 0.19 utils/bench.py gpu_memory_usage_all
    gradients=GradientRules(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    # Weights in 16 bits, and Trainer's bf16 or fp16 all the same: 0.16.1 utils/config/__init__.py `cfg.torch_dtype`.
    # bf16: auto is what torch says: 0.19 utils/config/__init__.py resolve_dtype.
    casts=Casts(autocast="16-bit", loads_narrow=True, emulates_bf16=always),
    loss=Loss(chunks="tiles"),  # cut-cross-entropy is what it offers as fused-linear
    # examples: quantize_moe_experts in all of them
    quantizing=Quantizing(
        experts_in=BITSANDBYTES,
        loads_whole=_loads_whole,
        prepares_quantized_experts=False,
        narrowed_again=("embedding", "head", "norm"),
    ),
    # 0.19 asks for peft 0.20.0; loaders/adapter.py find_all_linear_names, _patch_peft_param_wrapper_dropout
    peft=Peft(version=(0, 20), names_linear_layers=True, ignores_dropout=True),
    sharding=Sharding(takes_zero=True, ring="uncounted"),
)
