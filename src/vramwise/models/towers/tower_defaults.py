"""Defaults of the configuration classes (transformers 5.23) of towers, by `model_type`."""

from __future__ import annotations

SIGLIP: dict[str, object] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip


_LARGE = {**SIGLIP, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}


_WHISPER = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "d_model": 1280,
    "max_source_positions": 1500, "activation_function": "gelu", "output_dim": 3584,
}  # fmt: skip


DEFAULTS: dict[str, dict[str, object]] = {
    "clip_vision_model": {**SIGLIP, "patch_size": 32, "hidden_act": "quick_gelu"},
    "siglip_vision_model": SIGLIP,
    "siglip2_vision_model": {**SIGLIP, "num_patches": 256},
    "minimax_m3_vl_vision": {
        **SIGLIP, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
        "image_size": 2016, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_act": "gelu",
    },
    "idefics3_vision": {**SIGLIP, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32},
    "pixtral": {**_LARGE, "image_size": 1024, "hidden_act": "gelu"},
    "internvl_vision": {**_LARGE, "image_size": 448, "patch_size": 14, "hidden_act": "gelu"},
    "qianfan_ocr_vision": {**_LARGE, "image_size": 448, "patch_size": 14, "hidden_act": "gelu"},
    "llama4_vision_model": {
        **_LARGE, "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448,
        "patch_size": 14, "hidden_act": "gelu",
    },
    "got_ocr2_vision": {
        "hidden_size": 768, "output_channels": 256, "num_hidden_layers": 12, "num_attention_heads": 12,
        "num_channels": 3, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu", "window_size": 14,
        "global_attn_indexes": [2, 5, 8, 11], "mlp_dim": 3072,
    },
    "qwen2_audio_encoder": _WHISPER,
    "qwen2_5_omni_audio_encoder": _WHISPER,
    "qwen3_omni_moe_audio_encoder": {**_WHISPER, "downsample_hidden_size": 480},
    "qwen3_asr_encoder": {
        **_WHISPER, "encoder_layers": 24, "encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "d_model": 1024,
        "downsample_hidden_size": 480,
    },
    "voxtral_encoder": {
        "num_mel_bins": 128, "num_hidden_layers": 32, "num_attention_heads": 20, "intermediate_size": 5120,
        "hidden_size": 1280, "max_source_positions": 1500, "activation_function": "gelu",
    },
    "paddleocr_vl_vision": {
        **SIGLIP, "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        "image_size": 384, "patch_size": 14, "spatial_merge_size": 2,
    },
    "audioflamingo3_encoder": {
        "num_mel_bins": 128, "num_hidden_layers": 32, "num_attention_heads": 20, "intermediate_size": 5120,
        "hidden_size": 1280, "max_source_positions": 1500, "activation_function": "gelu",
    },
    "glmasr_encoder": {
        "num_mel_bins": 128, "num_hidden_layers": 32, "num_attention_heads": 20, "intermediate_size": 5120,
        "hidden_size": 1280, "hidden_act": "gelu",
    },
    "ovis2_vision": {
        **_LARGE, "intermediate_size": 2816, "num_attention_heads": 8, "patch_size": 14, "hidden_act": "silu",
        "vocab_size": 16_384, "hidden_stride": 1, "num_visual_indicator_tokens": 5,
    },
    "video_llama_3_vision": SIGLIP,
    "moss_transcribe_diarize_audio": {
        "num_mel_bins": 80, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
        "hidden_size": 1024, "max_source_positions": 1500, "activation_function": "gelu",
    },
}  # fmt: skip
