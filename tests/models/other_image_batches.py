"""Small models of LLaVA's kin, of Aya Vision and of DeepSeek's, and batches for them."""

from __future__ import annotations

from typing import Any

from image_batches import SIGLIP, TOWER, Case, square, whole

from vramwise.models.execution import Images

LLAMA: dict[str, Any] = {"model_type": "llama"}
COHERE: dict[str, Any] = {"model_type": "cohere2", "head_dim": 8, "sliding_window": 4, "layer_types": [
    "sliding_attention", "full_attention"], "pad_token_id": 0}  # fmt: skip
CODES = {
    "embed_dim": 4, "num_embeddings": 9, "latent_channels": 4, "base_channels": 32, "channel_multiplier": [1, 1],
    "projection_dim": 32, "image_token_embed_dim": 32,
}  # fmt: skip
JANUS = {
    "model_type": "janus_vision_model", "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2,
    "image_size": 16, "patch_size": 4, "num_channels": 3, "projection_dim": 32, "mlp_ratio": 1.5,
}  # fmt: skip
CASES: dict[str, Case] = {
    "video_llava": (
        whole("video_llava", {**TOWER, "model_type": "clip_vision_model"}, LLAMA), Images(2, 3, 3, tokens=9), square,
    ),
    "aya_vision": (
        whole("aya_vision", {**SIGLIP, "vision_use_head": False}, COHERE, downsample_factor=2),
        Images(1, 4, 4, tokens=12, tiles=3), square,
    ),
    "aya_vision of CLIP": (
        whole("aya_vision", {**TOWER, "model_type": "clip_vision_model", "image_size": 16}, COHERE,
              vision_feature_layer=1, vision_feature_select_strategy="default", downsample_factor=2),
        Images(2, 4, 4, tokens=4), square,
    ),
    "deepseek_vl": (
        whole("deepseek_vl", {**SIGLIP, "vision_use_head": True}, LLAMA), Images(1, 4, 4, tokens=16), square,
    ),
    "janus": (
        whole("janus", JANUS, LLAMA, vq_config=CODES), Images(2, 4, 4, tokens=16), square,
    ),
}  # fmt: skip
