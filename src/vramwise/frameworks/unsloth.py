"""unsloth: Trainer over transformers' classes, most of whose operations it replaces."""

from __future__ import annotations

from vramwise.frameworks.attention import types_without
from vramwise.frameworks.defaults import FUSED_ADAMW, LOOPED_ADAMW, LOOPED_ADAMW_BEFORE_TORCH_2, Default
from vramwise.frameworks.framework import Casts, Command, Framework, GradientRules, Loss, Quantizing, Sharding
from vramwise.frameworks.transformers import waits_for_the_last
from vramwise.frameworks.versions import described, followed, reaches
from vramwise.models.model import Model
from vramwise.scenario import TrainSettings

WITH_FLEX = frozenset({"gpt_oss"})
"""Types that it trains with flex attention, whatever is asked for.

unsloth_zoo 2026.10 temporary_patches/gpt_oss.py, flex_attention_with_sink.
"""


FORWARD_OF_ITS_OWN = ("llama", "qwen2", "qwen3", "qwen3_moe", "gemma", "gemma2", "cohere", "granite", "falcon_h1")
"""Types whose causal model runs models/llama.py CausalLM_fast_forward (unsloth 2025.8.9).

Others are compiled by unsloth_zoo, whose forward cuts logits of any number of tokens (compiler.py).
"""


_LONGEST_WITH_LOGITS = 1024


def _logits_below(train: TrainSettings, model: Model) -> int:
    """`if bsz*q_len <= 1024: RETURN_LOGITS = True`: models/llama.py of unsloth 2024.12.5 to 2026.10.9,
    models/mistral.py of 2025.4.7 to 2026.10.9 (not of 2025.3.19)."""
    kind = model.config.model_type
    since = (2024, 12, 5) if kind in FORWARD_OF_ITS_OWN else (2025, 4) if kind == "mistral" else None
    return _LONGEST_WITH_LOGITS + 1 if since is not None and reaches(followed(train, "unsloth"), since) else 0


def _attention(given: TrainSettings, train: TrainSettings, model: Model) -> str:
    """SDPA or eager attention by itself, where a class has no flash attention.

    In every version as in the one described: most types run attention of unsloth's own, which caps Gemma 2's scores
    itself (2024.7 to 2026.10 models/gemma2.py slow_attention_softcapping) and gave Phi 3 SDPA before its class had it.
    """
    kind = model.config.model_type
    if kind in WITH_FLEX:
        return "flex"
    version = described("transformers")
    without_sdpa = kind in types_without("sdpa", version)
    if train.attention == "flash" and kind in types_without("flash", version):
        return "eager" if without_sdpa else "sdpa"
    return "eager" if train.attention == "sdpa" and without_sdpa else train.attention


def _attention_note(asked: TrainSettings, train: TrainSettings, model_type: str) -> str:
    if model_type not in WITH_FLEX:
        return ""
    other = f", not {asked.attention}" if "attention" in asked.explicit and asked.attention != "flex" else ""
    return f"unsloth trains {model_type} with flex attention{other}: linear in the sequence, sinks included"


DEFAULTS = (
    Default("", "precision", "bf16",
            "unsloth 2026.10 models/vision.py: float32_mixed_precision False where the checkpoint is bf16; "
            "models/llama.py loads in bf16"),
    Default("", "optimizer", "adamw-8bit",
            "unsloth 2026.10 models/rl.py: optim of its trainers, and of all its notebooks"),
    FUSED_ADAMW,
    LOOPED_ADAMW,
    LOOPED_ADAMW_BEFORE_TORCH_2,
    Default("", "checkpointing", "full",
            "unsloth 2026.10 models/llama.py get_peft_model: use_gradient_checkpointing unsloth"),
    Default("checkpointing=full|selective", "offload_activations", "cpu",
            "unsloth 2026.10 models/llama.py: layers' inputs go to host memory"),
    Default("unsloth<2024.11.8", "loss", "fused",
            "unsloth 2024.11.7 models/llama.py: kernels/cross_entropy_loss.py over all logits"),
    Default("torch<2.4", "loss", "fused",
            "unsloth_zoo 2025.3.17 loss_utils.py: HAS_CUT_CROSS_ENTROPY wants torch 2.4 and triton 3.0"),
    Default(f"unsloth<2025.8 type={'|'.join((*FORWARD_OF_ITS_OWN, 'mistral'))}", "loss", "fused-linear",
            "unsloth 2024.11.8 models/llama.py, mistral.py: cut cross entropy"),
    Default("unsloth<2025.8", "loss", "fused",
            "unsloth_zoo 2025.3.17 compiler.py cross_entropy_replacement_3: forwards that mask images keep all logits"),
    Default("", "loss", "fused-linear", "unsloth pull request 3148 (August 2025): unsloth_fused_ce_loss"),
    Default("unsloth>=2024.3", "expandable_segments", "true",
            "unsloth __init__.py since March 2024, later unsloth_zoo"),
)  # fmt: skip

RECORD = Framework(
    name="unsloth",
    title="unsloth",
    package="unsloth",
    newest="2026.10",
    commands=(
        Command("unsloth", "unsloth", ("train",), example="unsloth train"),
        Command("unsloth", module="unsloth-cli"),
    ),
    defaults=DEFAULTS,
    trainer=True,
    batches="conversations",  # `max_seq_length` cuts what is longer
    classes="patched",  # models/llama.py `attention_mask = None`: no mask in training
    attention=_attention,
    attention_note=_attention_note,
    kernels=("unsloth",),
    replaces_flash=True,  # models/_utils.py
    gradients=GradientRules(deferred=waits_for_the_last, reduced_in_compute_dtype=True),
    # 2024.8 to 2026.10 models/llama.py: torch_dtype and bnb_4bit_compute_dtype are its `dtype`, of 16 bits
    casts=Casts(autocast="quantized", loads_narrow=True),
    loss=Loss(chunks="tiles", fused_linear_is_own=True, logits_below=_logits_below),
    # Packed in 4 bits like linear layers (unsloth_zoo 2026.10 temporary_patches/moe_utils_bnb4bit.py), gpt-oss's as
    # linear layers (gpt_oss.py GptOssExpertsBnb4bit).
    # 2026.10 models/llama.py: the frozen module leaves the GPU, and "Tesla T4 must use float32 and not float16"
    quantizing=Quantizing(experts_in=("nf4", "fp4"), experts_again=True, keeps_originals=False, copies="without fp16"),
    peft=None,  # models/llama.py get_peft_model has targets of its own
    sharding=Sharding(shares="nothing"),
)
