"""The towers that Qwen 2, 2.5 and 3 VL and GLM-4.1V train themselves: frames in pairs, 2 × 2 patches a token."""

from __future__ import annotations

import math
from typing import Any

from vramwise.models.config import Config
from vramwise.models.operations.frames import Downsampled, SampledFramesEmbedding
from vramwise.models.operations.towers import FramesEmbedding, InterpolatedFramesEmbedding, WindowedFramesEmbedding
from vramwise.models.towers.tower_design import Tower, Weight, num_patches, pair, with_bias

# Defaults of the configuration classes of transformers 5.23.
_QWEN3: dict[str, object] = {
    "depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16, "in_channels": 3, "patch_size": 16,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584, "num_position_embeddings": 2304,
    "hidden_act": "gelu_pytorch_tanh", "deepstack_visual_indexes": [8, 16, 24],
}  # fmt: skip
_QWEN25 = {
    "depth": 32, "hidden_size": 3584, "intermediate_size": 3420, "num_heads": 16, "in_channels": 3, "patch_size": 14,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 3584, "hidden_act": "silu",
    "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
}  # fmt: skip
DEFAULTS: dict[str, dict[str, object]] = {
    "qwen2_vl_vision": {**_QWEN25, "embed_dim": 1280, "mlp_ratio": 4, "hidden_act": "quick_gelu"},
    "qwen2_5_vl_vision": _QWEN25,
    "qwen2_5_omni_vision_encoder": _QWEN25,
    "qwen3_omni_moe_vision_encoder": _QWEN3,
    "cohere_compass_vision": _QWEN3,
    "qwen3_vl_vision": _QWEN3,
    "qwen3_vl_moe_vision": _QWEN3,
    "glm4v_vision": {
        **_QWEN25, "depth": 24, "hidden_size": 1536, "intermediate_size": 13_696, "num_heads": 12,
        "out_hidden_size": 4096, "image_size": 336,
    },
    "exaone4_5_vision": {**_QWEN25, "num_key_value_heads": 8},
    "glm_ocr_vision": {
        **_QWEN25, "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 1536,
        "attention_bias": True,
    },
    "glm5_next_vision": {
        **_QWEN25, "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "out_hidden_size": 1536,
        "attention_bias": True, "projection_intermediate_size": 10_240,
    },
}  # fmt: skip


def _frames(c: Config, width: int) -> tuple[Weight, Weight]:
    """The convolution over pairs of frames."""
    frames = pair(c, "temporal_patch_size")[0]
    return with_bias("patch_embed.proj", width, c.size("in_channels"), frames, *pair(c, "patch_size"))


def _sizes(c: Config, width: int, intermediate_size: int) -> dict[str, Any]:
    return {
        "width": width, "intermediate_size": intermediate_size, "num_layers": c.size("depth"), "layers": "blocks",
        "num_heads": c.size("num_heads"), "function": c.text("hidden_act"), "norms": ("norm1", "norm2"),
        "output": "attn.proj", "packed": True,
    }  # fmt: skip


GATED = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def qwen2(c: Config) -> Tower:
    """Qwen2-VL: layer norms, a plain MLP."""
    width = c.size("embed_dim")
    sizes = _sizes(c, width, int(width * c.number("mlp_ratio")))
    return Tower(**sizes, before=_frames(c, width)[:1], qkv=("attn.qkv",), embedding=FramesEmbedding())


def qwen25(c: Config) -> Tower:
    """Qwen2.5-VL: RMS norms, a gated MLP; its Omni sibling has q, k and v apart."""
    width = c.hidden_size
    omni = c.model_type == "qwen2_5_omni_vision_encoder"
    qkv = ("attn.q", "attn.k", "attn.v") if omni else ("attn.qkv",)
    sizes = _sizes(c, width, c.intermediate_size)
    window = c.size("window_size") // c.size("spatial_merge_size") // pair(c, "patch_size")[0]
    return Tower(
        **sizes, before=_frames(c, width)[:1], norm="rms", qkv=qkv, mlp=GATED,
        embedding=WindowedFramesEmbedding(merge=c.size("spatial_merge_size"), window=window),
        whole_layers=frozenset(map(int, c.items("fullatt_block_indexes") or ())),
    )  # fmt: skip


def exaone45(c: Config) -> Tower:
    """EXAONE 4.5: Qwen2.5-VL's with fewer keys than queries."""
    width, heads, groups = c.hidden_size, c.size("num_heads"), c.size("num_key_value_heads")
    if heads % groups:
        raise c.error(f"num_key_value_heads ({groups}) does not divide num_heads ({heads})")
    return Tower(
        **_sizes(c, width, c.intermediate_size), before=_frames(c, width)[:1], norm="rms", qkv=("attn.qkv",), mlp=GATED,
        key_value_width=width // heads * groups,
    )  # fmt: skip


def qwen3(c: Config) -> Tower:
    """Qwen3-VL: a learned table of positions."""
    width = c.hidden_size
    positions = ("pos_embed.weight", (c.size("num_position_embeddings"), width))
    return Tower(
        **_sizes(c, width, c.intermediate_size), before=(*_frames(c, width), positions), qkv=("attn.qkv",),
        mlp=("mlp.linear_fc1", "mlp.linear_fc2"), embedding=InterpolatedFramesEmbedding(),
        tapped=frozenset(map(int, c.items("deepstack_visual_indexes") or ())),
    )  # fmt: skip


def glm4v(c: Config) -> Tower:
    """GLM-4.1V: RMS norms, a gated MLP as wide as the language model, a convolution that joins 2 × 2 patches."""
    width, out, bias, merge = c.hidden_size, c.size("out_hidden_size"), c.flag("attention_bias"), "spatial_merge_size"
    positions = ("embeddings.position_embedding.weight", (num_patches(c), width))
    norms: tuple[Weight, Weight] = (("post_conv_layernorm.weight", (width,)), ("post_layernorm.weight", (width,)))
    return Tower(
        **_sizes(c, width, out), before=(positions, *_frames(c, width), norms[0]),
        after=(norms[1], *with_bias("downsample", out, width, *pair(c, merge))), norm="rms", qkv=("attn.qkv",),
        biases=(bias, bias, bias, False), mlp=GATED, mlp_bias=False,
        embedding=SampledFramesEmbedding(side=math.isqrt(num_patches(c))), closing=Downsampled(side=c.size(merge)),
    )  # fmt: skip


def glm_ocr(c: Config) -> Tower:
    """GLM-OCR: that of GLM-4.1V without learned positions, with biases and norms of heads."""
    width, out, bias, merge = c.hidden_size, c.size("out_hidden_size"), c.flag("attention_bias"), "spatial_merge_size"
    head = width // c.size("num_heads")
    norms = tuple((f"attn.{name}_norm.weight", (head,)) for name in "qk")
    return Tower(
        **_sizes(c, width, c.intermediate_size), before=_frames(c, width),
        after=(("post_layernorm.weight", (width,)), *with_bias("downsample", out, width, *pair(c, merge))), norm="rms",
        qkv=("attn.qkv",), biases=(bias,) * 4, mlp=GATED, mlp_bias=bias, of_layer=(norms,) * c.size("depth"),
    )  # fmt: skip


TOWERS = {
    "qwen2_vl_vision": qwen2, "qwen2_5_vl_vision": qwen25, "qwen2_5_omni_vision_encoder": qwen25,
    "qwen3_omni_moe_vision_encoder": qwen3, "qwen3_vl_vision": qwen3, "qwen3_vl_moe_vision": qwen3,
    "cohere_compass_vision": qwen3,
    "glm4v_vision": glm4v, "glm_ocr_vision": glm_ocr, "exaone4_5_vision": exaone45,
}  # fmt: skip
"""`model_type` of a vision config -> its tower."""
