"""How flash attention sees grouped heads, by transformers version."""

from __future__ import annotations

from vramwise.models.model import Model

# Classes `…FlashAttention2` that copy keys and values to all heads before the kernel, which needs no copy, and the
# version since which they do not: models/*/modeling_*.py of transformers 4.47.1, 4.48.3, 4.52.4, 4.53.3, 4.57.3, 5.0.0.
_REPEATED_BEFORE = {
    "mistral": (4, 48), "mixtral": (4, 48), "phi3": (4, 48), "qwen2": (4, 48), "starcoder2": (4, 48),
    "zamba": (4, 48), "qwen2_vl": (4, 53), "qwen2_5_vl": (4, 53), "jamba": (5, 0), "phimoe": (5, 0),
    "qwen2_moe": (5, 0),
}  # fmt: skip


def repeats_heads_for_flash(model: Model, version: tuple[int, int]) -> bool:
    """Whether keys and values are copied to all heads before flash attention, in this version of transformers."""
    return version < _REPEATED_BEFORE.get(str(model.config.model_type), (0, 0))
