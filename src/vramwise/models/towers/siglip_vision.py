"""SigLIP's tower, 1 and 2, and Idefics 3's."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Operation
from vramwise.models.config import Config
from vramwise.models.operations.attention import LLAMA
from vramwise.models.operations.flat_images import FlatPatches
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.padded_images import PADDED_IMAGES, SiglipEmbeddingWithPadding
from vramwise.models.operations.towers import SiglipEmbedding
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.tower_defaults import SIGLIP
from vramwise.models.towers.tower_design import (
    Tower,
    Weight,
    encoder_sizes,
    layer_norm,
    num_patches,
    own_size,
    patch_weights,
    with_bias,
)
from vramwise.models.towers.vision_tower import tower_blocks


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
    patches = patch_weights(c, "embeddings.patch_embedding")
    if flat:
        patches = with_bias("embeddings.patch_embedding", width, c.size("num_channels") * c.size("patch_size") ** 2)
    embedding: Operation = FlatPatches() if flat else SiglipEmbedding(**own_size(c))
    if idefics:
        embedding = SiglipEmbeddingWithPadding(**own_size(c))
    return Tower(
        **encoder_sizes(c),
        before=(*patches, positions),
        after=layer_norm("post_layernorm", width),
        closing=LayerNorm(),
        pooling=head,
        attention_style=PADDED_IMAGES if flat or idefics else LLAMA,
        embedding=embedding,
    )


def paddleocr(c: Config) -> Tower:
    """PaddleOCR's: SigLIP's layers over patches that are turned by their places besides."""
    return replace(siglip(c), embedding=Undescribed(name="an embedding of patches"))


def video_llama_3(c: Config) -> Tower:
    """VideoLLaMA 3's: SigLIP's layers over the patches of all images in one row, turned by their places."""
    return Tower(
        **encoder_sizes(c), before=patch_weights(c, "embeddings.patch_embedding"), packed=True,
        after=layer_norm("post_layernorm", c.hidden_size), closing=Undescribed(name="patches averaged by merge size"),
    )  # fmt: skip


def siglip_blocks(c: Config, name: str) -> tuple[Block, ...]:
    """SigLIP's tower under a name, with its class's defaults."""
    c = Config({**c.filled(SIGLIP).values, "model_type": "siglip_vision_model"}, c.model_id)
    return tower_blocks(c, siglip(c), name)
