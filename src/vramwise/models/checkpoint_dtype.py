"""The dtype of a checkpoint's weights, as far as its config tells."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.formats import dtype

# Architectures whose checkpoints were published in fp32, before configs stated a dtype.
_PUBLISHED_IN_FP32 = frozenset(
    {"albert", "bert", "distilbert", "electra", "gpt2", "gpt_neo", "mt5", "roberta", "t5", "vit", "xlm-roberta"}
)

_TRAINS_IN = frozenset({"bf16", "fp16", "fp32"})


def stated_dtype(config: Mapping[str, object]) -> str | None:
    """`torch_dtype` (or `dtype`) of a config, None where it says nothing."""
    inner = config.get("text_config")
    for table in (config, inner if isinstance(inner, Mapping) else {}):
        name = table.get("torch_dtype") or table.get("dtype")
        if isinstance(name, str) and name != "auto":
            return dtype(name.removeprefix("torch.")).name
    return None


def checkpoint_dtype(config: Mapping[str, object]) -> str:
    """The config's dtype; where it states none, fp32 for architectures from before bf16, else bf16 (assumed)."""
    return stated_dtype(config) or ("fp32" if config.get("model_type") in _PUBLISHED_IN_FP32 else "bf16")


def loaded_dtype(config: Mapping[str, object]) -> str:
    """The dtype in which training loads the weights; those of 8 bits and less are widened to bf16."""
    found = checkpoint_dtype(config)
    return found if found in _TRAINS_IN else "bf16"
