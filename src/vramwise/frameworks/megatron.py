"""Megatron-LM: its own layers on Transformer Engine, with main gradients and a distributed optimizer."""

from __future__ import annotations

from vramwise.frameworks.defaults import Default
from vramwise.frameworks.framework import Casts, Command, Framework, GradientRules, Loss, Quantizing, Sharding
from vramwise.frameworks.versions import reaches, stated
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings

SINKS = frozenset({"flint", "gpt_oss", "granite_swa", "granitemoe_swa", "mimo_v2_flash"})
"""Types with a learned column of scores, of which flash kernels make an argument.

They turn flash attention off (Transformer Engine's "Disabling FlashAttention for softmax_type"); cuDNN's fused
attention takes them since 9.13 alone, for some layouts since 9.18.
"""


def _attention(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    return "eager" if train.attention == "flash" and model.config.model_type in SINKS else train.attention


def _attention_note(asked: TrainSettings, train: TrainSettings, model_type: str) -> str:
    if model_type not in SINKS or train.attention != "eager":
        return ""
    return "sinks turn Transformer Engine's flash attention off; its fused attention takes them since cuDNN 9.13"


def _shares_key_heads(train: TrainSettings) -> bool:
    """Core 0.16.1 transformer_config.py: groups are a multiple or a divisor of the ranks; 0.15.3 wants a multiple."""
    return reaches(stated(train, "megatron"), (0, 16))


def _notes(train: TrainSettings) -> tuple[str, ...]:
    if not (train.param_dtype or "").startswith("fp8"):
        return ()
    return (
        "weights of the layers' products are stored in 8 bits (--fp8-param-gather); "
        "with param_dtype bf16 their 8-bit copies lie beside them",
    )


DEFAULTS = (
    Default("", "precision", "bf16-master",
            "Megatron core 0.16 optimizer/optimizer.py Float16OptimizerWithFloat16Params"),
    Default("", "optimizer_impl", "fused", "Megatron core 0.16 optimizer/__init__.py: FusedAdam"),
    Default("checkpointing=selective", "recompute", "core_attn",
            "Megatron core 0.16 transformer/transformer_config.py __post_init__: recompute_modules is core_attn "
            "where it is not set"),
    Default("", "loss", "vocab-parallel",
            "Megatron core 0.16 models/gpt/gpt_model.py compute_language_model_loss: vocab_parallel_cross_entropy, "
            "whatever the tensor parallel size"),
    Default("", "attention", "flash",
            "Megatron core 0.16 extensions/transformer_engine.py: attention_backend auto takes flash attention"),
    Default("offload_optimizer=cpu", "precision_aware_optimizer", "true",
            "Megatron-LM training/arguments.py validate_args: --optimizer-cpu-offload is refused without "
            "--use-precision-aware-optimizer"),
)  # fmt: skip

RECORD = Framework(
    name="megatron",
    title="Megatron",
    package="megatron",
    newest="0.16",
    commands=(
        Command("megatron", "pretrain_gpt.py", example="torchrun pretrain_gpt.py"),
        Command("megatron_swift", "megatron", ("sft", "pt", "rlhf")),  # ms-swift's, on Megatron Core
    ),
    defaults=DEFAULTS,
    states_from_start=True,
    own_optimizer=True,
    attention=_attention,
    attention_note=_attention_note,
    notes=_notes,
    makes_speech=False,  # the thinker alone: mcore-bridge 1.6.5 mm_gpts/qwen.py, Megatron-Bridge models/qwen_omni
    kernels=("megatron", "transformer-engine"),
    fuses_norms=True,  # core 0.16 models/gpt/gpt_layer_specs.py
    gradients=GradientRules(main_buffer=True),
    casts=Casts(
        autocast="never",
        fp8_weights="fp8_e4m3",  # fp8_param_gather, as all of Megatron-Bridge's fp8 recipes but the blockwise have it
        fp8_recipe="delayed",  # --fp8-recipe
        # `is_first_microbatch` (core 0.16 extensions/transformer_engine.py, module/base.py get_weight_workspace)
        caches_8_bit_weights=True,
    ),
    loss=Loss(softmax_in_place=True),  # core 0.16 tensor_parallel/cross_entropy.py
    quantizing=Quantizing(keeps_originals=False),
    peft=None,
    sharding=Sharding(
        shares_key_heads=_shares_key_heads,
        ring="transformer-engine",  # --cp-comm-type p2p
        regathers_sequences=True,
        # mcore-bridge 1.6.5 model/mm_gpts/utils.py HuggingFaceVit; Megatron-Bridge 067f987d: the towers of eleven are
        # transformers' classes (utils/common_utils.py hook_hf_module_setattr_for_tp_grad_sync), those of others
        # (Qwen3-VL) are cut, which is not told apart
        whole_towers=True,
        even_chunks=True,
        leaves_weights_whole=True,  # core 0.16 distributed/fsdp: data_parallel_sharding_strategy optim_grads
        cuts=("tensor", "pipeline", "context", "expert"),
        shares="tensors",
        offloads=False,
    ),
    reserved_ratio="megatron",
)
