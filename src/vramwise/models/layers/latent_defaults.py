"""Defaults of the configuration classes (transformers 5.23) of decoders with multi-head latent attention."""

from __future__ import annotations

from vramwise.models.config import Config

_NAMES = (
    "vocab_size", "hidden_size", "intermediate_size", "moe_intermediate_size", "num_hidden_layers",
    "num_attention_heads", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group", "first_k_dense_replace",
)  # fmt: skip
# In the order of _NAMES, None where the class has no such default, then the number of experts.
_DEFAULTS: dict[str, tuple[int | None, ...]] = {
    "axk1": (163_840, 7168, 18_432, 2048, 61, 64, 512, 1536, 128, 64, 128, 1, 8, 8, 4, 1, 192),
    "axk2": (163_840, 2048, 5120, 512, 48, 32, 128, 384, 64, 32, 64, 1, 8, None, None, 1, 128),
    "deepseek_v2": (
        102_400, 4096, 11_008, 1407, 32, 32, 512, 1536, 128, 64, 128, 2, None, None, None, 0, 64
    ),
    "deepseek_v3": (129_280, 7168, 18_432, 2048, 61, 128, 512, 1536, 128, 64, 128, 1, 8, 8, 4, 3, 256),
    "deepseek_v32": (129_280, 7168, 18_432, 2048, 61, 128, 512, 1536, 128, 64, 128, 1, 8, 8, 4, 3, 256),
    "glm4_moe_lite": (154_880, 2048, 10_240, 1536, 47, 20, 512, 768, 192, 64, 256, 1, 4, 1, 1, 1, 64),
    "glm_moe_dsa": (154_880, 6144, 12_288, 2048, 78, 64, 512, 2048, 192, 64, 256, 1, 8, 1, 1, 3, 256),
    "mistral4": (131_072, 4096, 12_288, 2048, 36, 32, 256, 1024, 64, 64, 128, 1, 4, 1, 1, 0, 128),
    "youtu": (128_256, 2048, 6144, None, 32, 16, 512, 1536, 128, 64, 128, None, None, None, None, None, None),
}  # fmt: skip


def completed(c: Config) -> tuple[Config, int | None]:
    """The config with its class's defaults, and the class's number of experts, None without any.

    An explicit null of `q_lora_rank` means queries without compression.
    """
    *sizes, num_experts = _DEFAULTS["deepseek_v3" if c.model_type == "kimi_k2" else c.model_type]
    defaults = {name: size for name, size in zip(_NAMES, sizes, strict=True) if size is not None}
    if "q_lora_rank" in c.values and c.values["q_lora_rank"] is None:
        del defaults["q_lora_rank"]
    return c.filled(defaults), num_experts
