"""CLIP and SigLIP 1 and 2 as models of their own: a tower for text, one for images, and what compares them.

Each row of the batch holds a text and an image, and the loss compares all of them.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.images import Similarities, UnitLength
from vramwise.models.operations.siglip import OverNorm, ShiftedSimilarities
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.contrastive import (
    SIGLIP_VISION_DEFAULTS,
    TEXT_DEFAULTS,
    VISION_DEFAULTS,
    clip_vision_tower,
    siglip_vision_tower,
    text_tower,
)


def task(c: Config) -> str:
    """None predicts tokens; a SigLIP without pooling head has nothing to compare, version 2 no described loss."""
    vision = c.table("vision_config") or Config({})
    if c.model_type == "siglip2":
        return "none"
    return "none" if c.model_type == "siglip" and not vision.flag("vision_use_head", True) else "contrastive"


def loss(c: Config) -> str:
    """SigLIP takes every pair for itself."""
    return "pairwise-sigmoid" if c.model_type == "siglip" and task(c) == "contrastive" else ""


def comparison(c: Config, text: Config, vision: Config) -> Block:
    """Projections of both towers to one width and to unit length, their similarities times a learned scale."""
    b = BlockBuilder("", part="projector")
    width = c.size("projection_dim", default=512)
    image = b.unary(UnitLength(), b.linear(b.input("image", vision.hidden_size), "visual_projection", width))
    words = b.unary(UnitLength(), b.linear(b.input("hidden", text.hidden_size), "text_projection", width))
    scale = b.parameter("", "logit_scale", ())
    return b.build(logits=b.op(Similarities(), "", [words, image], [1], [scale])[0])


def shifted_comparison(text: Config, vision: Config) -> Block:
    """Both towers to unit length, their similarities times a learned scale plus a learned shift."""
    b = BlockBuilder("", part="projector")
    image = b.input("image", vision.hidden_size)
    words = b.input("hidden", text.size("projection_size", default=text.hidden_size))
    learned = [b.parameter("", name, (1,)) for name in ("logit_scale", "logit_bias")]
    if not vision.flag("vision_use_head", True):
        return b.build(image=b.unary(Hold(), image, "", learned))
    image, words = b.unary(OverNorm(), image), b.unary(OverNorm(), words)
    return b.build(logits=b.op(ShiftedSimilarities(), "", [words, image], [1], learned)[0])


def flat_patches(v: Config) -> Block:
    """SigLIP 2's: a product of patches that come flat, of images of any size, and positions resized to each."""
    width, b = v.hidden_size, BlockBuilder("vision_model.embeddings", part="vision")
    pixels, patches = v.size("num_channels") * v.size("patch_size") ** 2, v.size("num_patches", default=256)
    weights = [
        b.parameter("patch_embedding", "weight", (width, pixels)), b.parameter("patch_embedding", "bias", (width,)),
        b.parameter("position_embedding", "weight", (patches, width)),
    ]  # fmt: skip
    return b.build(image=b.op(Undescribed(name="flat patches"), "patch_embedding", [], [width], weights)[0])


def blocks(c: Config) -> tuple[Block, ...]:
    """Text tower, image tower, comparison."""
    clip = c.model_type == "clip"
    text = (c.table("text_config") or Config({}, c.model_id)).filled(TEXT_DEFAULTS[c.model_type])
    text = text.filled({"looks_back": clip})
    vision = c.table("vision_config") or Config({}, c.model_id)
    if not clip:
        vision = vision.filled(SIGLIP_VISION_DEFAULTS)
        images = siglip_vision_tower(vision)
        if c.model_type == "siglip2":
            images = (flat_patches(vision), *images[1:])
        return (*text_tower(text, clip), *images, shifted_comparison(text, vision))
    vision = vision.filled(VISION_DEFAULTS)
    return (*text_tower(text, clip), *clip_vision_tower(vision), comparison(c, text, vision))
