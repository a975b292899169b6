"""The towers of pre-trained image encoders: CLIP, SigLIP, Idefics 3, Pixtral, InternVL, Llama 4."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.vision_tower import (
    Tower,
    Weight,
    layer_norm,
    num_patches,
    pair,
    tower_blocks,
    with_bias,
)

# Defaults of the configuration classes of transformers 5.23.
_SIGLIP: dict[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh",
}  # fmt: skip
_LARGE = {**_SIGLIP, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16}
DEFAULTS: dict[str, dict[str, Any]] = {
    "clip_vision_model": {**_SIGLIP, "patch_size": 32, "hidden_act": "quick_gelu"},
    "siglip_vision_model": _SIGLIP,
    "siglip2_vision_model": {**_SIGLIP, "num_patches": 256},
    "minimax_m3_vl_vision": {
        **_SIGLIP, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 16,
        "image_size": 2016, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "hidden_act": "gelu",
    },
    "idefics3_vision": {**_SIGLIP, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32},
    "pixtral": {**_LARGE, "image_size": 1024, "hidden_act": "gelu"},
    "internvl_vision": {**_LARGE, "image_size": 448, "patch_size": 14, "hidden_act": "gelu"},
    "llama4_vision_model": {
        **_LARGE, "hidden_size": 768, "intermediate_size": 5632, "num_hidden_layers": 34, "image_size": 448,
        "patch_size": 14, "hidden_act": "gelu",
    },
}  # fmt: skip


def _sizes(c: Config) -> dict[str, Any]:
    return {
        "width": c.hidden_size, "intermediate_size": c.intermediate_size, "num_layers": c.num_hidden_layers,
        "num_heads": c.num_attention_heads, "function": c.text("hidden_act"),
    }  # fmt: skip


def _patches(c: Config, name: str) -> tuple[Weight, Weight]:
    """The convolution that turns patches into vectors."""
    return with_bias(name, c.hidden_size, c.size("num_channels"), *pair(c, "patch_size"))


def _pixels(c: Config) -> tuple[tuple[str, int], ...]:
    """Sizes of an image, which the tower takes in one size only."""
    return ("image_size", pair(c, "image_size")[0]), ("num_channels", c.size("num_channels"))


def clip(c: Config) -> Tower:
    """CLIP: a class token, patches without bias, a norm before the layers."""
    width, embeddings = c.hidden_size, "embeddings.patch_embedding"
    return Tower(
        **_sizes(c),
        before=(
            ("embeddings.class_embedding", (width,)), _patches(c, embeddings)[0],
            ("embeddings.position_embedding.weight", (num_patches(c) + 1, width)), *layer_norm("pre_layrnorm", width),
        ),
        after=layer_norm("post_layernorm", width), closing="layer_norm", embedding="clip_embedding",
        embedding_settings=_pixels(c),
    )  # fmt: skip


def siglip(c: Config) -> Tower:
    """SigLIP: no class token; an attention pooling head where the config does not switch it off.

    SigLIP 2 takes patches that are flat already.
    """
    width = c.hidden_size
    flat, idefics = c.model_type == "siglip2_vision_model", c.model_type == "idefics3_vision"
    head: tuple[Weight, ...] = ()
    if c.model_type.endswith("vision_model") and c.flag("vision_use_head", True):
        head = (
            ("head.probe", (1, 1, width)), ("head.attention.in_proj_weight", (3 * width, width)),
            ("head.attention.in_proj_bias", (3 * width,)), *with_bias("head.attention.out_proj", width, width),
            *layer_norm("head.layernorm", width), *with_bias("head.mlp.fc1", c.intermediate_size, width),
            *with_bias("head.mlp.fc2", width, c.intermediate_size),
        )  # fmt: skip
    positions = ("embeddings.position_embedding.weight", (c.size("num_patches") if flat else num_patches(c), width))
    patches = _patches(c, "embeddings.patch_embedding")
    if flat:
        patches = with_bias("embeddings.patch_embedding", width, c.size("num_channels") * c.size("patch_size") ** 2)
    return Tower(
        **_sizes(c),
        before=(*patches, positions),
        after=layer_norm("post_layernorm", width),
        closing="layer_norm",
        pooling=head,
        embedding="patch_embedding" if flat else "siglip_embedding_by_image" if idefics else "siglip_embedding",
        embedding_settings=() if flat else _pixels(c),
    )


def siglip_blocks(c: Config, name: str) -> tuple[Block, ...]:
    """SigLIP's tower under a name, with its class's defaults."""
    c = Config({**c.filled(_SIGLIP).values, "model_type": "siglip_vision_model"}, c.model_id)
    return tower_blocks(c, siglip(c), name)


def minimax_m3(c: Config) -> Tower:
    """MiniMax M3: pairs of frames, a norm before the layers, rotary positions."""
    width, frames = c.hidden_size, c.size("temporal_patch_size")
    weight = ("embeddings.proj.weight", (width, c.size("num_channels"), frames, *pair(c, "patch_size")))
    return Tower(**_sizes(c), before=(weight, *layer_norm("pre_layrnorm", width)), layers="layers")


def pixtral(c: Config) -> Tower:
    """Pixtral: rotary positions, RMS norms, gated MLP, no biases."""
    return Tower(
        **_sizes(c), before=(_patches(c, "patch_conv")[0], ("ln_pre.weight", (c.hidden_size,))),
        layers="transformer.layers", norm="rms", norms=("attention_norm", "ffn_norm"),
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"), output="attention.o_proj",
        biases=(False,) * 4, mlp=tuple(f"feed_forward.{n}_proj" for n in ("gate", "up", "down")), mlp_bias=False,
        embedding="pixtral_embedding", embedding_settings=(("num_channels", c.size("num_channels")),),
        attention_style="rows_of_images", turned="turned_patches",
    )  # fmt: skip


def internvl(c: Config) -> Tower:
    """InternViT: a class token, layer scales, norms of q and k where switched on."""
    width, bias = c.hidden_size, c.flag("attention_bias")
    before: list[Weight] = [("embeddings.cls_token", (1, 1, width))]
    if c.flag("use_mask_token"):
        before.append(("embeddings.mask_token", (1, 1, width)))
    if c.flag("use_absolute_position_embeddings", True):
        before.append(("embeddings.position_embeddings", (1, num_patches(c) + 1, width)))
    return Tower(
        **_sizes(c), before=(*before, *_patches(c, "embeddings.patch_embeddings.projection")),
        after=() if c.flag("use_mean_pooling", True) else layer_norm("layernorm", width), layers="encoder.layer",
        attention_style="plain", embedding="internvl_embedding", closing="layer_norm", embedding_settings=_pixels(c),
        norm="rms" if c.text("norm_type") == "rms_norm" else "layer", norms=("layernorm_before", "layernorm_after"),
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"), output="attention.projection_layer",
        biases=(bias, bias, bias, True), scales=("lambda_1", "lambda_2"), scale_width=width,
        qk_norms=("attention.q_norm", "attention.k_norm") if c.flag("use_qk_norm") else None,
    )  # fmt: skip


def llama4(c: Config) -> Tower:
    """Llama 4: patches unfolded for a product, a class token at the end, norms around the layers."""
    width, (height, breadth) = c.hidden_size, pair(c, "patch_size")
    return Tower(
        **_sizes(c),
        before=(
            ("class_embedding", (width,)), ("positional_embedding_vlm", (num_patches(c) + 1, width)),
            ("patch_embedding.linear.weight", (width, c.size("num_channels") * height * breadth)),
            *layer_norm("layernorm_pre", width),
        ),
        after=layer_norm("layernorm_post", width), layers="model.layers", output="self_attn.o_proj",
        embedding="unfolded_patches", embedding_settings=_pixels(c), closing="layer_norm", attention_style="plain",
        turned_by_row="turned_as_complex",
        norms=("input_layernorm", "post_attention_layernorm"),
    )  # fmt: skip


TOWERS = {
    "clip_vision_model": clip, "siglip_vision_model": siglip, "idefics3_vision": siglip, "pixtral": pixtral,
    "siglip2_vision_model": siglip, "minimax_m3_vl_vision": minimax_m3,
    "internvl_vision": internvl, "llama4_vision_model": llama4,
}  # fmt: skip
"""`model_type` of a vision config -> its tower."""
