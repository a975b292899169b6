"""Sarvam with latent attention (Sarvam 105B): DeepSeek V3's layers, by whose class transformers 5.24 runs it."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import deepseek

_NAMES = {
    "num_local_experts": "n_routed_experts", "num_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts",
}  # fmt: skip
# Defaults of `SarvamMLAConfig` (transformers 5.24), where they are not DeepSeek V3's; queries are not compressed.
_DEFAULTS = {
    "vocab_size": 262_144, "hidden_size": 4096, "intermediate_size": 16_384, "num_hidden_layers": 32,
    "num_attention_heads": 64, "n_routed_experts": 128, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    values = {_NAMES.get(name, name): value for name, value in c.values.items()}
    filled = Config(values, c.model_id).filled(_DEFAULTS)
    # An explicit null, which deepseek's own default does not replace.
    whole = {**filled.values, "model_type": "deepseek_v3", "q_lora_rank": filled.get("q_lora_rank")}
    return deepseek.blocks(Config(whole, c.model_id))
