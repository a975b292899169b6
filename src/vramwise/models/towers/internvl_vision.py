"""InternViT, the tower of InternVL."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.attention import PLAIN
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.towers import InternvlEmbedding
from vramwise.models.towers.tower_design import (
    Tower,
    Weight,
    encoder_sizes,
    layer_norm,
    num_patches,
    own_size,
    patch_weights,
)


def internvl(c: Config) -> Tower:
    """InternViT: a class token, layer scales, norms of q and k where switched on."""
    width, bias = c.hidden_size, c.flag("attention_bias", c.model_type == "qianfan_ocr_vision")
    layers = "layers" if c.model_type == "qianfan_ocr_vision" else "encoder.layer"
    before: list[Weight] = [("embeddings.cls_token", (1, 1, width))]
    if c.flag("use_mask_token"):
        before.append(("embeddings.mask_token", (1, 1, width)))
    if c.flag("use_absolute_position_embeddings", True):
        before.append(("embeddings.position_embeddings", (1, num_patches(c) + 1, width)))
    return Tower(
        **encoder_sizes(c), before=(*before, *patch_weights(c, "embeddings.patch_embeddings.projection")),
        after=() if c.flag("use_mean_pooling", True) else layer_norm("layernorm", width), layers=layers,
        attention_style=PLAIN, embedding=InternvlEmbedding(**own_size(c)), closing=LayerNorm(),
        norm="rms" if c.text("norm_type") == "rms_norm" else "layer", norms=("layernorm_before", "layernorm_after"),
        qkv=("attention.q_proj", "attention.k_proj", "attention.v_proj"), output="attention.projection_layer",
        biases=(bias, bias, bias, True), scales=("lambda_1", "lambda_2"), scale_width=width,
        qk_norms=("attention.q_norm", "attention.k_norm") if c.flag("use_qk_norm") else None,
    )  # fmt: skip
