"""Phi-3 and Phi-3.5 vision: CLIP ViT-L/14 at 336 pixels, a projector of four joined patches, and Phi-3.

Parameter names are those of `modeling_phi3_v.py` in microsoft/Phi-3.5-vision-instruct.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import phi
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.clip_layer import layer

# CLIP_VIT_LARGE_PATCH14_336_CONFIG of that file.
_CLIP = Config({
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "hidden_act": "quick_gelu",
})  # fmt: skip
_PATCH, _POSITIONS = 14, (336 // 14) ** 2 + 1
_NAME = "model.vision_embed_tokens"
_TOWER = f"{_NAME}.img_processor.vision_model"


def embedding() -> Block:
    """Patches without biases, a class token, learned positions, a norm."""
    b = BlockBuilder(_TOWER, part="vision", modality="image")
    width = _CLIP.hidden_size
    weights = [
        b.parameter("embeddings", "class_embedding", (width,)),
        b.parameter("embeddings.patch_embedding", "weight", (width, 3, _PATCH, _PATCH)),
        b.parameter("embeddings.position_embedding", "weight", (_POSITIONS, width)),
    ]
    x = b.op(Undescribed(name="an embedding of patches"), "embeddings", [], [width], weights)[0]
    return b.build(image=b.layer_norm(x, "pre_layrnorm", part="vision"))


def projector(c: Config) -> Block:
    """The tower's closing norm, learned separators of rows and images, two linear layers."""
    b = BlockBuilder(_NAME, part="projector", modality="image")
    width, joined = c.hidden_size, 4 * _CLIP.hidden_size
    x = b.layer_norm(b.input("image", _CLIP.hidden_size), "img_processor.vision_model.post_layernorm", part="vision")
    separators = [b.parameter("", "glb_GN", (1, 1, joined)), b.parameter("", "sub_GN", (1, 1, 1, joined))]
    x = b.unary(Undescribed(name="joined patches"), x, "", separators, width=joined)
    h = b.activation(b.linear(x, "img_projection.0", width, bias=True), "gelu", "img_projection.1")
    return b.build(image=b.linear(h, "img_projection.2", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, Phi-3's text model."""
    layers = (layer(_CLIP, _TOWER, i, "vision", "image") for i in range(_CLIP.num_hidden_layers))
    text = phi.blocks(Config({**c.values, "model_type": "phi3"}, c.model_id))
    return (embedding(), *layers, projector(c.filled({"hidden_size": 3072})), *text)
