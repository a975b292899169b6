"""Small models that read patches of pairs of frames, beside Qwen's, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from image_batches import FRAMES, POSITIONED, Case, frames, whole

from vramwise.models.execution import Images

GLM: dict[str, Any] = {**FRAMES, "model_type": "glm4v_vision", "image_size": 16, "hidden_size": 24}
GLM_TEXT: dict[str, Any] = {"model_type": "glm4v_text", "pad_token_id": 0}
GLM_EXPERTS: dict[str, Any] = {
    "model_type": "glm4v_moe_text", "pad_token_id": 0, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8, "first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 0],
                        "partial_rotary_factor": 0.5},
}  # fmt: skip
SOUND: dict[str, Any] = {"d_model": 8, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 8,
                         "num_mel_bins": 8, "downsample_hidden_size": 4, "output_dim": 32}  # fmt: skip
OMNI_EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_omni_moe_text", "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
}  # fmt: skip
ERNIE: dict[str, Any] = {
    "model_type": "ernie4_5_vl_moe_text", "moe_k": 2, "moe_num_experts": 4, "moe_num_shared_experts": 1,
    "moe_intermediate_size": [8, 16], "mlp_layer_types": ["dense", "sparse"], "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 2]},
}  # fmt: skip


MINIMAX: dict[str, Any] = {
    "model_type": "minimax_m3_vl_text", "head_dim": 8, "dense_intermediate_size": 40, "shared_intermediate_size": 8,
    "num_local_experts": 4, "num_experts_per_tok": 2, "mlp_layer_types": ["dense", "sparse"], "rotary_dim": 4,
    "layer_types": ["full_attention", "full_attention"], "pad_token_id": 0, "rope_parameters": None,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def told_apart(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """As `frames`; the experts are told which tokens are an image's, and its marks'."""
    kinds = torch.zeros(count, images.tokens + 3, dtype=torch.int64)
    kinds[:, : images.tokens + 2] = 1
    return {**frames(config, images, count), "moe_mm_token_type_ids": kinds}


KIMI: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 36, "num_attention_heads": 2, "num_hidden_layers": 3, "patch_size": 4,
    "pos_emb_height": 3, "pos_emb_width": 5,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v3", "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 8, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}, "pad_token_id": 0,
}  # fmt: skip


def patches(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Patches of every image in one row, and its grid."""
    side = config["vision_config"]["patch_size"]
    grid = torch.tensor([[1, images.rows, images.columns]] * count)
    return {"pixel_values": torch.zeros(count * images.patches, 3, side, side), "image_grid_thw": grid}


CASES: dict[str, Case] = {
    "glm4v": (whole("glm4v", GLM, GLM_TEXT), Images(1, 4, 6, tokens=6), frames),
    "glm46v": (whole("glm46v", {**GLM, "attention_bias": True}, GLM_TEXT), Images(2, 2, 4, tokens=2), frames),
    "glm4v_moe": (
        whole("glm4v_moe", {**GLM, "model_type": "glm4v_moe_vision"}, GLM_EXPERTS), Images(1, 6, 2, tokens=3), frames,
    ),
    "qwen2_5_omni_thinker": (
        whole("qwen2_5_omni_thinker", {**FRAMES, "model_type": "qwen2_5_omni_vision_encoder", "window_size": 16,
                                       "fullatt_block_indexes": [1]},
              {"model_type": "qwen2_5_omni_text"}, audio_config=SOUND),
        Images(1, 6, 4, tokens=6), frames,
    ),
    "qwen3_omni_moe_thinker": (
        whole("qwen3_omni_moe_thinker", {**POSITIONED, "model_type": "qwen3_omni_moe_vision_encoder",
                                         "deepstack_visual_indexes": [0]}, OMNI_EXPERTS, audio_config=SOUND),
        Images(2, 4, 6, tokens=6), frames,
    ),
    "ernie4_5_vl_moe": (
        whole("ernie4_5_vl_moe", {**FRAMES, "model_type": "ernie4_5_vl_moe_vision", "temporal_patch_size": 1}, ERNIE),
        Images(1, 4, 6, tokens=6), told_apart,
    ),
    "minimax_m3_vl": (
        whole("minimax_m3_vl", {**FRAMES, "model_type": "minimax_m3_vl_vision", "num_channels": 3, "hidden_size": 32,
                                "num_attention_heads": 2, "num_hidden_layers": 2}, MINIMAX, projector_hidden_size=40,
              merged_hidden_size=128),
        Images(2, 4, 2, tokens=2), frames,
    ),
}  # fmt: skip
CASES |= {
    "kimi_k25": (
        whole("kimi_k25", KIMI, LATENT, projection_hidden_size=24, video_token_id=4), Images(1, 4, 6, tokens=6),
        patches,
    ),
    "kimi_k25 with several images": (
        whole("kimi_k25", {**KIMI, "merge_kernel_size": [1, 2]}, LATENT, projection_hidden_size=24, video_token_id=4),
        Images(2, 2, 4, tokens=4), patches,
    ),
}  # fmt: skip
