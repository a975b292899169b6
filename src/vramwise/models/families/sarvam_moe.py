"""Sarvam's mixture: GLM 4.5's layers, whole heads turned; transformers 5.24 runs it by GLM's class."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import glm4_moe

_NAMES = {
    "num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias",
}  # fmt: skip
# Defaults of `SarvamMoEConfig` (transformers 5.24).
_DEFAULTS = {
    "vocab_size": 262_144, "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 19,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 64, "moe_intermediate_size": 1024,
    "num_experts_per_tok": 6, "use_qk_norm": True, "n_routed_experts": 128, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "partial_rotary_factor": 1.0,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    values = {_NAMES.get(name, name): value for name, value in c.values.items()}
    return glm4_moe.blocks(Config({**values, "model_type": "glm4_moe"}, c.model_id).filled(_DEFAULTS))
