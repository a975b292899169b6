"""Kimi K3: a vision tower over patches of frames, a projector, and Kimi Linear's text model with K3's switches.

Its code is on the hub; tensors are those that llama.cpp's converter and graph read (conversion/kimi_k3.py,
src/models/kimi-k3.cpp, August 2026) and that the checkpoint's headers list.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.frames import GatheredSquares, JoinGathered
from vramwise.models.towers.kimi_vision import kimi_config, kimi_k3_tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks


def projector(v: Config, width: int) -> Block:
    """Patches gathered by squares, two products, a norm."""
    b = BlockBuilder("mm_projector", part="projector", modality="image")
    rows, columns = v.sides("merge_kernel_size", (2, 2))
    joined = v.hidden_size * rows * columns
    x = b.unary(GatheredSquares(tokens=rows * columns), b.input("image", v.hidden_size))
    h = b.linear(b.unary(JoinGathered(), x, width=joined), "proj.0", joined)
    h = b.linear(b.activation(h, "gelu"), "proj.2", width, shard="row")
    return b.build(image=b.rms_norm(h, "post_norm", part="projector"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v, text = kimi_config(c), c.table("text_config") or Config({}, c.model_id)
    embedding, *language = language_model(text, under("language_model"))
    width = language[-1].inputs["hidden"].width
    vision = (*tower_blocks(v, kimi_k3_tower(v), "vision_tower"), projector(v, width))
    return (*vision, embedding, image_tokens(width), *language)
