"""What configuration classes take for keys that the text config of a model with images or sound leaves out."""

from __future__ import annotations

from typing import Any

from vramwise.models.layers.class_defaults import class_defaults

_QWEN2: dict[str, object] = {
    "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "sliding_window": 4096,
}  # fmt: skip
_QWEN2_VL = {
    "vocab_size": 152_064, "hidden_size": 8192, "intermediate_size": 29_568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 4096, "max_window_layers": 80,
}  # fmt: skip
_MISTRAL = {**_QWEN2, "vocab_size": 32_000, "intermediate_size": 14_336, "num_key_value_heads": 8}
TEXT_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {**_QWEN2, "vocab_size": 32_000, "intermediate_size": 11_008, "num_key_value_heads": None},
    "granite": {**_QWEN2, "vocab_size": 32_000, "intermediate_size": 11_008, "num_key_value_heads": None},
    "granite_docling_text": {
        "vocab_size": 133_800, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 4,
    },
    "hunyuan_vl_text": {**class_defaults("hunyuan_v1_dense"), "mrope_section": [16, 24, 24]},
    "inkling2_text": {"hidden_size": 4608},
    "lfm3": {"hidden_size": 2048},
    "hy_v4_vl_text": {
        "vocab_size": 120_832, "hidden_size": 6144, "intermediate_size": 18_432, "moe_intermediate_size": 2048,
        "num_hidden_layers": 78, "num_attention_heads": 64, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192,
        "qk_rope_head_dim": 64, "v_head_dim": 256, "index_head_dim": 128, "index_n_heads": 32, "hc_mult": 4,
        "mrope_section": [12, 10, 10],
    },
    "mistral": _MISTRAL,
    "mistral_large4_text": {
        "vocab_size": 204_800, "hidden_size": 6144, "intermediate_size": 24_576, "moe_intermediate_size": 6144,
        "num_hidden_layers": 72, "num_attention_heads": 64, "n_routed_experts": 128, "n_shared_experts": 1,
        "num_experts_per_tok": 4, "kv_lora_rank": 512, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "first_k_dense_replace": 1, "index_n_heads": 32, "index_head_dim": 128,
        "max_position_embeddings": 32 * 32_768, "final_logit_softcapping": 30.0,
    },
    "qwen2": _QWEN2,
    "qwen3": {**_QWEN2, "head_dim": 128},
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_5_omni_text": {
        **_QWEN2, "vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "sliding_window": 32_768,
    },
    "gemma3_text": class_defaults("gemma3_text"),
    "glm4v_text": {"partial_rotary_factor": 1.0, "attention_bias": True, "head_dim": None},
    "glm4v_moe_text": {"vocab_size": 151_424, "attention_bias": True, "use_qk_norm": False},
    "glm_ocr_text": {
        "vocab_size": 59_392, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16,
        "num_attention_heads": 16, "num_key_value_heads": 8, "partial_rotary_factor": 1.0, "head_dim": None,
        "attention_bias": False,
    },
    "paddleocr_vl_text": {
        "vocab_size": 103_424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "tie_word_embeddings": True,
    },
    "mllama_text_model": {
        "vocab_size": 128_256, "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14_336, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    },
    "muse_glimmer_text": {
        "vocab_size": 202_048, "hidden_size": 6656, "intermediate_size": 19_968, "num_hidden_layers": 52,
        "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "hidden_activation": "silu",
        "sliding_window": 2048,
    },
    "step3p7_text": {
        "vocab_size": 128_815, "hidden_size": 4096, "intermediate_size": 11_264, "num_hidden_layers": 45,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1280, "n_routed_experts": 288, "share_expert_dim": 1280, "hidden_act": "silu",
    },
    "qwen3_omni_moe_text": {
        "vocab_size": 3584, "hidden_size": 2048, "intermediate_size": 18_944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "moe_intermediate_size": 768, "num_experts_per_tok": 8,
        "num_experts": 128, "norm_topk_prob": True,
    },
    "qwen3_vl_text": {**_QWEN2, "head_dim": 128},
    "qwen3_vl_moe_text": {
        **_QWEN2, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
        "num_key_value_heads": 16, "moe_intermediate_size": 1408, "num_local_experts": 60, "num_experts_per_tok": 4,
        "norm_topk_prob": True,
    },
}  # fmt: skip
"""As in transformers 5.23, by the text config's type."""
