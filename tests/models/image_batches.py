"""Small models that read images, and batches that hold some: what the classes take beside ids and labels."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch

from vramwise.models.execution import Images

IMAGE_TOKEN = 3
TEXT: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 24, "rope_parameters": {
        "rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]},
}  # fmt: skip
TOWER: dict[str, Any] = {
    "hidden_size": 24, "intermediate_size": 36, "num_hidden_layers": 3, "num_attention_heads": 2, "num_channels": 3,
    "image_size": 12, "patch_size": 4,
}  # fmt: skip
FRAMES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 20, "depth": 2, "num_heads": 2, "in_channels": 3, "patch_size": 4,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 32,
}  # fmt: skip


def whole(model_type: str, tower: dict[str, Any], text: dict[str, Any], **rest: Any) -> dict[str, Any]:
    # Copies: configuration classes write into the tables that they are given.
    return {
        "model_type": model_type, "text_config": {**deepcopy(TEXT), **deepcopy(text)}, "vision_config": deepcopy(tower),
        "image_token_id": IMAGE_TOKEN, "image_token_index": IMAGE_TOKEN, **rest,
    }  # fmt: skip


def square(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Pixels of images of the tower's own size."""
    tower = config["vision_config"]
    side = tower["image_size"] if isinstance(tower["image_size"], int) else tower["image_size"][0]
    return {"pixel_values": torch.zeros(count * images.tiles, tower["num_channels"], side, side)}


def tiled(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Tiles of every sequence beside one another, none of them empty."""
    pixels = square(config, images, count)["pixel_values"] + 1
    return {"pixel_values": pixels.unflatten(0, (count, images.tiles))}


def frames(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Flat patches of every image in one row, and its grid."""
    v = config["vision_config"]
    flat = v["in_channels"] * v["temporal_patch_size"] * v["patch_size"] ** 2
    grid = torch.tensor([[1, images.rows, images.columns]] * count)
    return {
        "pixel_values": torch.zeros(count * images.patches, flat),
        "image_grid_thw": grid,
        "mm_token_type_ids": None,
    }


def typed(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """As `square`; the text is told which tokens are an image's."""
    return square(config, images, count) | {"token_type_ids": None}


def sized(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Pixels of images of any size, and the sizes."""
    v = config["vision_config"]
    height, width = images.rows * v["patch_size"], images.columns * v["patch_size"]
    pixels = torch.zeros(count, v["num_channels"], height, width)
    return {"pixel_values": pixels, "image_sizes": torch.tensor([[height, width]] * count)}


def tiled_by_size(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Tiles of images twice as wide as high."""
    side = config["vision_config"]["image_size"]
    sizes = torch.tensor([[side, 2 * side]] * count)
    return {**tiled(config, images, count), "image_sizes": sizes}


def several(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """One tile of each of several images."""
    per_sequence = torch.tensor([images.per_sequence] * (count // images.per_sequence))
    return {**tiled_by_size(config, images, count), "batch_num_images": per_sequence}


def crossed(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """Tiles of one image a sequence, which every token sees."""
    pixels = square(config, images, count)["pixel_values"].unflatten(0, (count, 1, images.tiles))
    ids, seen = torch.ones(count, 1, dtype=torch.int64), torch.ones(count, 1, images.tiles, dtype=torch.int64)
    mask = torch.ones(count, images.tokens + 3, 1, images.tiles)
    return {"pixel_values": pixels, "aspect_ratio_ids": ids, "aspect_ratio_mask": seen, "cross_attention_mask": mask}


Inputs = Callable[[dict[str, Any], Images, int], dict[str, Any]]
Case = tuple[dict[str, Any], Images, Inputs]
CASES: dict[str, Case] = {
    "llava": (
        whole("llava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"}),
        Images(1, 3, 3, tokens=9), square,
    ),
    "llava from the last layer, class token and all": (
        whole("llava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"}, vision_feature_layer=-1,
              vision_feature_select_strategy="full"),
        Images(2, 3, 3, tokens=10), square,
    ),
    "llava from what comes before the layers": (
        whole("llava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"}, vision_feature_layer=-4),
        Images(1, 3, 3, tokens=9), square,
    ),
    "qwen2_vl": (
        whole("qwen2_vl", {**FRAMES, "embed_dim": 16, "model_type": "qwen2_vl"}, {"model_type": "qwen2_vl_text"}),
        Images(1, 4, 6, tokens=6), frames,
    ),
    "qwen2_5_vl": (
        whole("qwen2_5_vl", {**FRAMES, "model_type": "qwen2_5_vl", "window_size": 16, "fullatt_block_indexes": [1]},
              {"model_type": "qwen2_5_vl_text"}),
        Images(2, 6, 4, tokens=6), frames,
    ),
}  # fmt: skip

GEMMA = {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 4, "layer_types": [
    "sliding_attention", "full_attention"], "pad_token_id": 0}  # fmt: skip
SIGLIP = {**TOWER, "model_type": "siglip_vision_model", "image_size": 16}
INTERN = {**TOWER, "model_type": "internvl_vision", "image_size": [16, 16], "patch_size": [4, 4]}
CASES |= {
    "gemma3": (
        whole("gemma3", {**SIGLIP, "vision_use_head": False}, GEMMA, mm_tokens_per_image=4), Images(1, 4, 4, tokens=4),
        typed,
    ),
    "gemma3 with a pooling head": (
        whole("gemma3", {**SIGLIP, "vision_use_head": True}, GEMMA, mm_tokens_per_image=4), Images(2, 4, 4, tokens=4),
        typed,
    ),
    "paligemma": (
        whole("paligemma", {**SIGLIP, "vision_use_head": False}, {"model_type": "gemma", "head_dim": 16},
              projection_dim=32), Images(1, 4, 4, tokens=16), typed,
    ),
    "idefics3": (
        whole("idefics3", {**TOWER, "model_type": "idefics3_vision", "image_size": 16},
              {"model_type": "llama", "pad_token_id": 0}, scale_factor=2),
        Images(1, 4, 4, tokens=12, tiles=3), tiled,
    ),
    "internvl": (
        whole("internvl", {**INTERN, "use_qk_norm": True, "use_absolute_position_embeddings": True, "norm_type":
                           "rms_norm"}, {}), Images(1, 4, 4, tokens=8, tiles=2), square,
    ),
    "internvl without norms of heads": (
        whole("internvl", {**INTERN, "attention_bias": True, "use_absolute_position_embeddings": False}, {},
              vision_feature_layer=-2), Images(1, 4, 4, tokens=4), square,
    ),
}  # fmt: skip

POSITIONED = {**FRAMES, "num_position_embeddings": 9}
CASES |= {
    "qwen3_vl": (
        whole("qwen3_vl", {**POSITIONED, "model_type": "qwen3_vl", "depth": 4, "deepstack_visual_indexes": [2]},
              {"model_type": "qwen3_vl_text", "head_dim": 8}), Images(1, 4, 6, tokens=6), frames,
    ),
    "qwen3_5": (
        whole("qwen3_5", {**POSITIONED, "model_type": "qwen3_5"},
              {"model_type": "qwen3_5_text", "head_dim": 8, "linear_num_value_heads": 2, "linear_num_key_heads": 2,
               "linear_key_head_dim": 8, "linear_value_head_dim": 8, "layer_types":
               ["full_attention", "full_attention"]}), Images(2, 2, 4, tokens=2), frames,
    ),
}  # fmt: skip

CASES |= {
    "mistral3": (
        whole("mistral3", {**TOWER, "model_type": "pixtral", "image_size": 32}, {"model_type": "mistral",
              "sliding_window": None, "head_dim": 8}, spatial_merge_size=2, vision_feature_layer=-1),
        Images(2, 4, 6, tokens=6), sized,
    ),
    "mistral_large4": (
        whole("mistral_large4", {**TOWER, "model_type": "pixtral", "image_size": 32},
              {"model_type": "mistral_large4_text", "num_key_value_heads": 4, "kv_lora_rank": 8, "qk_nope_head_dim": 8,
               "qk_rope_head_dim": 8, "v_head_dim": 8, "moe_intermediate_size": 16, "n_routed_experts": 4,
               "num_experts_per_tok": 2, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4},
              spatial_merge_size=2, vision_feature_layer=-1),
        Images(2, 4, 6, tokens=6), sized,
    ),
    "llava of Pixtral": (
        whole("llava", {**TOWER, "model_type": "pixtral", "image_size": 32}, {"model_type": "mistral",
              "sliding_window": None, "head_dim": 8}, vision_feature_layer=-1, vision_feature_select_strategy="full"),
        Images(2, 4, 6, tokens=24), sized,
    ),
}  # fmt: skip

CASES |= {
    "llava_next": (
        whole("llava_next", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              image_grid_pinpoints=[[12, 24], [24, 12]]), Images(1, 3, 3, tokens=30, tiles=3), tiled_by_size,
    ),
}  # fmt: skip

CASES |= {
    "llava_next of two layers": (
        whole("llava_next", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              image_grid_pinpoints=[[12, 24], [24, 12]], vision_feature_layer=[1, -1]),
        Images(1, 3, 3, tokens=30, tiles=3), tiled_by_size,
    ),
    "llava of two layers": (
        whole("llava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              vision_feature_layer=[-2, 0]), Images(1, 3, 3, tokens=9), square,
    ),
    "llava_next_video": (
        whole("llava_next_video", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              image_grid_pinpoints=[[12, 24], [24, 12]]), Images(1, 3, 3, tokens=30, tiles=3), tiled_by_size,
    ),
    "llava_onevision": (
        whole("llava_onevision", {**SIGLIP, "vision_use_head": False}, {}, image_grid_pinpoints=[[16, 32], [32, 16]]),
        Images(1, 4, 4, tokens=16 + 32 + 4, tiles=3), tiled_by_size,
    ),
    "llava_onevision shrunk": (
        whole("llava_onevision", {**SIGLIP, "vision_use_head": True}, {}, image_grid_pinpoints=[[16, 32], [32, 16]],
              vision_aspect_ratio="anyres_max_1"), Images(1, 4, 4, tokens=16 + 10 + 2, tiles=3), tiled_by_size,
    ),
    "llava_onevision with several images": (
        whole("llava_onevision", {**SIGLIP, "vision_use_head": False}, {}, image_grid_pinpoints=[[16, 32], [32, 16]]),
        Images(2, 4, 4, tokens=17), several,
    ),
    "vipllava": (
        whole("vipllava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              vision_feature_layer=[-2, 1, -1]), Images(1, 3, 3, tokens=9), square,
    ),
    "vipllava of one layer": (
        whole("vipllava", {**TOWER, "model_type": "clip_vision_model"}, {"model_type": "llama"},
              vision_feature_layer=-2), Images(2, 3, 3, tokens=9), square,
    ),
}  # fmt: skip

CASES |= {
    "mllama": (
        whole("mllama", {**TOWER, "model_type": "mllama_vision_model", "attention_heads": 2, "num_global_layers": 1,
                         "max_num_tiles": 2, "supported_aspect_ratios": [[1, 1], [1, 2]], "vision_output_dim": 48,
                         "intermediate_layers_indices": [1]},
              {"model_type": "mllama_text_model", "cross_attention_layers": [1], "pad_token_id": 0,
               "num_hidden_layers": 3}), Images(1, 3, 3, tokens=1, tiles=2), crossed,
    ),
}  # fmt: skip


def image_inputs(case: Case, batch: int, sequence: int) -> dict[str, Any]:
    """Ids with those of images first, a token of text between them, labels, and what the class takes for the images."""
    config, images, made = case
    ids = torch.zeros(batch, sequence, dtype=torch.int64)
    for first in range(0, images.per_sequence * (images.tokens + 1), images.tokens + 1):
        ids[:, first : first + images.tokens] = IMAGE_TOKEN
    inputs = {"input_ids": ids, "labels": ids.clone(), "use_cache": False}
    inputs |= made(config, images, batch * images.per_sequence)
    for missing in [key for key, value in inputs.items() if value is None]:
        inputs[missing] = (ids == IMAGE_TOKEN).to(torch.int64)
    return inputs
