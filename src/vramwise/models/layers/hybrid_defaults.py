"""Defaults of the configuration classes (transformers 5.23) of decoders with layers of Mamba and of attention."""

from __future__ import annotations

_ZAMBA: dict[str, object] = {
    "vocab_size": 32_000, "hidden_act": "gelu", "mamba_d_conv": 4, "mamba_expand": 2, "tie_word_embeddings": True,
}  # fmt: skip
HYBRID_DEFAULTS: dict[str, dict[str, object]] = {
    "nemotron_h": {
        "vocab_size": 131_072, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "intermediate_size": 21_504, "mlp_hidden_act": "relu2", "ssm_state_size": 128,
        "mamba_num_heads": 128, "mamba_head_dim": 64, "mamba_hidden_act": "silu", "n_groups": 8, "conv_kernel": 4,
        "use_conv_bias": True, "chunk_size": 128, "norm_topk_prob": True, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
    },
    "zamba": {
        **_ZAMBA, "hidden_size": 3712, "intermediate_size": 14_848, "num_hidden_layers": 76,
        "num_attention_heads": 16, "num_key_value_heads": 16, "n_mamba_heads": 2, "attn_layer_period": 6,
        "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_conv_bias": True,
    },
    "zamba2": {
        **_ZAMBA, "hidden_size": 2560, "num_hidden_layers": 54, "num_attention_heads": 32, "n_mamba_heads": 8,
        "mamba_d_state": 64, "mamba_ngroups": 1, "chunk_size": 256, "num_mem_blocks": 1, "adapter_rank": 128,
    },
}  # fmt: skip
"""By `model_type`."""
