"""Small models of the Gemma 4 family, whose images are padded to one number of patches, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from image_batches import IMAGE_TOKEN, SIGLIP, Case, whole
from image_batches import TEXT as BASE

from vramwise.models.execution import Images

TEXT: dict[str, Any] = {
    "model_type": "gemma4_text", "head_dim": 8, "global_head_dim": 16, "sliding_window": 4, "pad_token_id": 0,
    "layer_types": ["sliding_attention", "full_attention"], "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 24, "rope_parameters": None, "final_logit_softcapping": 30.0,
}  # fmt: skip
TOWER: dict[str, Any] = {
    "model_type": "gemma4_vision", "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "patch_size": 4, "pooling_kernel_size": 2,
    "position_embedding_size": 9,
}  # fmt: skip
PIXELS = {
    "model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 2, "mm_embed_dim": 24,
    "output_proj_dims": 24, "mm_posemb_size": 9, "model_patch_size": 8,
}  # fmt: skip


def padded(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Flat patches of every image with their places, those of padding at −1; the text is told its images' tokens."""
    v = config["vision_config"]
    side = v["patch_size"] * (v["pooling_kernel_size"] if "mm_embed_dim" in v else 1)
    places = torch.full((count, images.padded_to, 2), -1)
    grid = torch.cartesian_prod(torch.arange(images.rows), torch.arange(images.columns)).flip(-1)
    places[:, : images.patches] = grid
    pixels = torch.zeros(count, images.padded_to, 3 * side**2)
    return {"pixel_values": pixels, "image_position_ids": places, "mm_token_type_ids": None}


def phi4(side: int) -> dict[str, Any]:
    """Text, tower and sound in one config."""
    text = {key: value for key, value in BASE.items() if key not in ("model_type", "rope_parameters")}
    sound = {
        "hidden_size": 8, "num_blocks": 1, "num_attention_heads": 2, "intermediate_size": 8, "input_size": 8,
        "nemo_conv_channels": 8, "ext_pw_out_channel": 8, "depthwise_separable_out_channel": 8,
    }  # fmt: skip
    tower = {
        "model_type": "phi4_multimodal_vision",
        "image_size": side,
        "crop_size": side,
        "image_token_id": IMAGE_TOKEN,
    }
    return {
        "model_type": "phi4_multimodal", **text, "vision_config": {**SIGLIP, **tower}, "audio_config": sound,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sliding_window": None,
    }  # fmt: skip


def crops(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """The whole image and two tiles beside each other, of which the last has padding, if any."""
    side, n = config["vision_config"]["image_size"], images.rows
    mask = torch.ones(count, images.tiles, n, n)
    if images.padded_to:
        mask[:, -1, :, n // 2 :] = 0
    sizes = torch.tensor([[side, 2 * side]] * count)
    pixels = torch.zeros(count, images.tiles, 3, side, side)
    return {"image_pixel_values": pixels, "image_sizes": sizes, "image_attention_mask": mask}


CASES: dict[str, Case] = {
    "gemma4": (
        whole("gemma4", TOWER, {**TEXT, "use_bidirectional_attention": "vision"}, audio_config=None),
        Images(2, 4, 2, tokens=2, padded_to=12), padded,
    ),
    "gemma4, clamped and standardized, without padding": (
        whole("gemma4", {**TOWER, "use_clipped_linears": True, "standardize": True}, TEXT, audio_config=None),
        Images(1, 4, 4, tokens=4, padded_to=16), padded,
    ),
    "gemma4_unified": (
        whole("gemma4_unified", PIXELS, {**TEXT, "model_type": "gemma4_unified_text", "hidden_size_per_layer_input": 0,
              "use_bidirectional_attention": "vision"}, audio_config=None),
        Images(1, 2, 2, tokens=4, padded_to=6), padded,
    ),
    "phi4_multimodal": (phi4(16), Images(1, 4, 4, tokens=15, tiles=3, padded_to=16), crops),
    "phi4_multimodal with whole tiles of an odd side": (phi4(12), Images(1, 3, 3, tokens=17, tiles=3), crops),
}  # fmt: skip
