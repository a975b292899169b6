"""Kimi VL: MoonViT over patches of images, a projector, and DeepSeek V3's text model.

Its code is on the hub; tensors are those that vLLM 0.33.0 reads (model_executor/models/kimi_vl.py and moonvit.py).
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.kimi_vision import kimi_config, kimi_vl_tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks


def projector(v: Config, width: int) -> Block:
    """A norm of each patch, squares side by side, two products."""
    b = BlockBuilder("multi_modal_projector", part="projector", modality="image")
    rows, columns = v.sides("merge_kernel_size", (2, 2))
    joined = v.hidden_size * rows * columns
    x = b.layer_norm(b.input("image", v.hidden_size), "pre_norm", part="projector")
    h = b.linear(b.unary(Undescribed(name="squares of patches"), x, width=joined), "linear_1", joined, bias=True)
    return b.build(image=b.linear(b.activation(h, "gelu"), "linear_2", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v, text = kimi_config(c), c.table("text_config") or Config({}, c.model_id)
    text = Config({"model_type": "deepseek_v3", "tie_word_embeddings": False, **text.values}, c.model_id)
    embedding, *language = language_model(text, under("language_model"))
    width = language[-1].inputs["hidden"].width
    vision = (*tower_blocks(v, kimi_vl_tower(v), "vision_tower"), projector(v, width))
    return (*vision, embedding, image_tokens(width), *language)
