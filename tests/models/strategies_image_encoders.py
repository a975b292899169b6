"""Small configs of ViT, CLIP and SigLIP as models of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Config = dict[str, Any]
Strategy = st.SearchStrategy[Config]


@st.composite
def tower(draw: st.DrawFn) -> Config:
    return {
        "hidden_size": draw(st.sampled_from([16, 32])),
        "intermediate_size": draw(st.integers(5, 40)),
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": draw(st.sampled_from([1, 2, 4])),
    }


@st.composite
def image_tower(draw: st.DrawFn) -> Config:
    sizes = {"image_size": draw(st.sampled_from([32, 45])), "patch_size": draw(st.sampled_from([4, 8]))}
    return {**draw(tower()), **sizes, "num_channels": draw(st.sampled_from([1, 3]))}


@st.composite
def text_tower(draw: st.DrawFn) -> Config:
    names = {"vocab_size": draw(st.integers(17, 60)), "max_position_embeddings": draw(st.integers(9, 20))}
    return {**draw(tower()), **names}


@st.composite
def two_towers(draw: st.DrawFn, model_type: str) -> Config:
    config = {"model_type": model_type, "text_config": draw(text_tower()), "vision_config": draw(image_tower())}
    if model_type == "clip":
        return {**config, "projection_dim": draw(st.integers(5, 20))}
    config["text_config"]["projection_size"] = config["vision_config"]["hidden_size"]  # else they cannot be compared
    config["vision_config"]["vision_use_head"] = draw(st.booleans())
    return config


@st.composite
def vit(draw: st.DrawFn) -> Config:
    config = {"model_type": "vit", **draw(image_tower()), "qkv_bias": draw(st.booleans())}
    if draw(st.booleans()):
        return {**config, "architectures": ["ViTForImageClassification"], "num_labels": draw(st.integers(2, 9))}
    return {**config, "pooler_output_size": draw(st.none() | st.integers(5, 20))}


@st.composite
def dino(draw: st.DrawFn, model_type: str) -> Config:
    config = {"model_type": model_type, **draw(image_tower())}
    flags = st.booleans()
    if model_type == "dinov3_vit":
        biases = {f"{name}_bias": draw(flags) for name in ("query", "key", "value", "proj", "mlp")}
        return {**config, **biases, "use_gated_mlp": draw(flags), "num_register_tokens": draw(st.integers(1, 3))}
    del config["intermediate_size"]
    config |= {"mlp_ratio": draw(st.integers(2, 4)), "qkv_bias": draw(flags), "use_swiglu_ffn": draw(flags)}
    if model_type == "dinov2_with_registers":
        return {**config, "num_register_tokens": draw(st.integers(1, 3))}
    config["use_mask_token"] = draw(flags)
    return {**config, "architectures": ["Dinov2ForImageClassification"], "num_labels": draw(st.integers(2, 9))}


@st.composite
def convnext(draw: st.DrawFn, model_type: str) -> Config:
    stages = draw(st.integers(1, 3))
    config: Config = {
        "model_type": model_type, "num_channels": draw(st.sampled_from([1, 3])), "patch_size": 4, "num_stages": stages,
        "hidden_sizes": draw(st.lists(st.sampled_from([4, 8]), min_size=stages, max_size=stages)),
        "depths": draw(st.lists(st.integers(1, 2), min_size=stages, max_size=stages)),
    }  # fmt: skip
    if model_type == "convnext":
        config["layer_scale_init_value"] = draw(st.sampled_from([0.0, 1e-6]))
    if draw(st.booleans()):
        name = {"convnext": "ConvNext", "convnextv2": "ConvNextV2"}[model_type]
        config |= {"architectures": [f"{name}ForImageClassification"], "num_labels": draw(st.integers(2, 9))}
    return config


@st.composite
def siglip2(draw: st.DrawFn) -> Config:
    config = draw(two_towers("siglip2"))
    del config["vision_config"]["image_size"]
    config["vision_config"]["num_patches"] = draw(st.sampled_from([9, 16]))
    return config


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "dinov2": lambda: dino("dinov2"),
    "dinov2_with_registers": lambda: dino("dinov2_with_registers"),
    "dinov3_vit": lambda: dino("dinov3_vit"),
    "clip": lambda: two_towers("clip"),
    "convnext": lambda: convnext("convnext"),
    "convnextv2": lambda: convnext("convnextv2"),
    "siglip2": siglip2,
    "siglip": lambda: two_towers("siglip"),
    "vit": vit,
}
