"""Small models of LLaVA's kin, of Aya Vision and of DeepSeek's, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from image_batches import POSITIONED, SIGLIP, TOWER, Case, frames, square, tiled, whole

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
SIGLIP2 = {**TOWER, "model_type": "siglip2_vision_model", "num_patches": 9, "vision_use_head": False}
LFM2: dict[str, Any] = {
    "model_type": "lfm2", "block_ff_dim": 40, "layer_types": ["full_attention", "conv"], "pad_token_id": 0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
}  # fmt: skip
SAM = {
    "hidden_size": 24, "output_channels": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "num_channels": 3,
    "image_size": 20, "patch_size": 4, "window_size": 2, "global_attn_indexes": [1], "mlp_dim": 36,
}  # fmt: skip


def twice(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Small images, and large ones beside them."""
    large = square({"vision_config": config["high_res_vision_config"]}, images, count)["pixel_values"]
    return {**square(config, images, count), "high_res_pixel_values": large}


def flat(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Flat patches of every input, those of padding masked, and the grids."""
    v, grids = config["vision_config"], images.grids * count
    mask = torch.zeros(len(grids), images.padded_to, dtype=torch.int64)
    for row, (rows, columns) in zip(mask, grids, strict=True):
        row[: rows * columns] = 1
    pixels = torch.zeros(len(grids), images.padded_to, v["num_channels"] * v["patch_size"] ** 2)
    return {"pixel_values": pixels, "spatial_shapes": torch.tensor(grids), "pixel_attention_mask": mask}


# Every token goes to every expert: those that no token goes to would save nothing.
STEP: dict[str, Any] = {
    "model_type": "step3p7_text", "num_sliding_attention_heads": 4, "head_dim": 8, "num_experts_per_tok": 2,
    "n_routed_experts": 2, "moe_intermediate_size": 8, "share_expert_dim": 8, "sliding_window": 4, "layer_types":
    ["full_attention", "sliding_attention"], "mlp_layer_types": ["dense", "sparse"], "pad_token_id": 1,
    "rope_parameters": {kind: {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
                        for kind in ("full_attention", "sliding_attention")},
}  # fmt: skip
STEP_TOWER = {
    "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 3, "image_size": 16, "patch_size": 4,
    "mlp_ratio": 1.5, "num_channels": 3,
}  # fmt: skip


def with_tiles(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Whole images, and tiles of another size."""
    *tiles, (rows, columns) = images.grids
    found: dict[str, Any] = {"pixel_values": torch.zeros(count, 3, 4 * rows, 4 * columns)}
    if tiles:
        height, width = (4 * side for side in tiles[0])
        found["pixel_values_local"] = torch.zeros(count * len(tiles), 3, height, width)
        found["num_local_patches"] = [len(tiles)] * count
    return found


ARIA: dict[str, Any] = {
    "model_type": "aria_text", "intermediate_size": 8, "moe_num_experts": 4, "moe_topk": 2, "pad_token_id": 0,
}  # fmt: skip


def split(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Inputs of one image of any size, the last rows of all but one padding where any is."""
    patch = config["vision_config"]["patch_size"]
    height, width = images.pixels or (images.rows * patch, images.columns * patch)
    mask = torch.ones(count, images.tiles, height, width, dtype=torch.int64)
    if images.padded_to:
        mask[:, :-1, -5:] = 0
    return {"pixel_values": torch.ones(count, images.tiles, 3, height, width), "pixel_attention_mask": mask}


def masked(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Square images, the last rows of which are padding where any is."""
    found = square(config, images, count)
    mask = torch.ones(count, *found["pixel_values"].shape[2:], dtype=torch.bool)
    if images.padded_to:
        mask[:, -5:] = False
    return {**found, "pixel_mask": mask}


MISTRAL: dict[str, Any] = {"model_type": "mistral", "sliding_window": None, "pad_token_id": 0}
PERCEIVER = {
    "hidden_act": "silu", "resampler_n_latents": 5, "resampler_depth": 2, "resampler_n_heads": 4,
    "resampler_head_dim": 6, "num_key_value_heads": 2, "hidden_size": 32,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "shared_expert_intermediate_size": 8,
}  # fmt: skip
DELTA: dict[str, Any] = {
    "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["full_attention", "full_attention"],
}  # fmt: skip
CASES: dict[str, Case] = {
    "qwen3_vl_moe": (
        whole("qwen3_vl_moe", {**POSITIONED, "model_type": "qwen3_vl_moe", "depth": 3, "deepstack_visual_indexes": [1]},
              {**EXPERTS, "model_type": "qwen3_vl_moe_text"}), Images(1, 4, 6, tokens=6), frames,
    ),
    "qwen3_5_moe": (
        whole("qwen3_5_moe", {**POSITIONED, "model_type": "qwen3_5_moe"},
              {**EXPERTS, **DELTA, "model_type": "qwen3_5_moe_text"}), Images(2, 2, 4, tokens=2), frames,
    ),
    "smolvlm": (
        whole("smolvlm", {**TOWER, "model_type": "smolvlm_vision", "image_size": 16},
              {"model_type": "llama", "pad_token_id": 0}, scale_factor=2), Images(1, 4, 4, tokens=12, tiles=3), tiled,
    ),
    "idefics2": (
        whole("idefics2", {**TOWER, "model_type": "idefics2_vision"}, MISTRAL, perceiver_config=PERCEIVER),
        Images(1, 3, 3, tokens=5), split,
    ),
    "idefics2 split": (
        whole("idefics2", {**TOWER, "model_type": "idefics2_vision"}, MISTRAL, perceiver_config=PERCEIVER),
        Images(1, 2, 4, tokens=25, tiles=5, padded_to=8, pixels=(11, 17)), split,
    ),
    "aria": (
        whole("aria", {**TOWER, "model_type": "idefics3_vision"}, ARIA, projector_patch_to_query_dict={9: 4, 16: 6}),
        Images(1, 3, 3, tokens=4), masked,
    ),
    "aria with padding": (
        whole("aria", {**TOWER, "model_type": "idefics3_vision", "image_size": 16}, ARIA,
              projector_patch_to_query_dict={9: 4, 16: 6}), Images(2, 4, 4, tokens=6, padded_to=16), masked,
    ),
    "step3p7": (
        whole("step3p7", STEP_TOWER, STEP, projector_bias=True), Images(2, 4, 4, tokens=1), with_tiles,
    ),
    "step3p7 in tiles": (
        whole("step3p7", STEP_TOWER, STEP), Images(1, 6, 6, tokens=9, tiles=3, last_grid=(4, 4)), with_tiles,
    ),
    "lfm2_vl": (
        whole("lfm2_vl", SIGLIP2, LFM2, downsample_factor=2, projector_hidden_size=40),
        Images(2, 2, 6, tokens=3, padded_to=16), flat,
    ),
    "lfm2_vl of one column": (
        whole("lfm2_vl", SIGLIP2, LFM2, downsample_factor=2, projector_hidden_size=40),
        Images(1, 4, 2, tokens=2, padded_to=16), flat,
    ),
    "lfm2_vl in tiles": (
        whole("lfm2_vl", {**SIGLIP2, "vision_use_head": True}, LFM2, downsample_factor=2, projector_hidden_size=40,
              projector_bias=False, projector_use_layernorm=False),
        Images(1, 4, 4, tokens=10, tiles=3, padded_to=16, last_grid=(2, 4)), flat,
    ),
    "lfm2_vl without padding": (
        whole("lfm2_vl", SIGLIP2, LFM2, downsample_factor=2, projector_hidden_size=40),
        Images(1, 4, 4, tokens=4, padded_to=16), flat,
    ),
    "deepseek_vl_hybrid": (
        whole("deepseek_vl_hybrid", {**SIGLIP, "vision_use_head": False}, LLAMA,
              high_res_vision_config={**SAM, "model_type": "sam_vision_model"}), Images(1, 4, 4, tokens=16), twice,
    ),
    "deepseek_vl_hybrid without padding": (
        whole("deepseek_vl_hybrid", {**SIGLIP, "vision_use_head": True}, LLAMA, high_res_vision_config={
              **SAM, "model_type": "sam_vision_model", "image_size": 16, "global_attn_indexes": [2]}),
        Images(2, 4, 4, tokens=16), twice,
    ),
    "got_ocr2": (
        whole("got_ocr2", {**SAM, "model_type": "got_ocr2_vision"}, {}), Images(1, 5, 5, tokens=4), square,
    ),
    "got_ocr2 without relative positions": (
        whole("got_ocr2", {**SAM, "model_type": "got_ocr2_vision", "use_rel_pos": False, "use_abs_pos": False,
                           "qkv_bias": False, "image_size": 16}, {}), Images(2, 4, 4, tokens=1), square,
    ),
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
