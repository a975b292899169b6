"""The vision tower of Qwen 3.5: Qwen3-VL's without results of layers between, and a merger to the text's width."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.towers.qwen_projectors import qwen3_merger
from vramwise.models.towers.qwen_vision import DEFAULTS, qwen3
from vramwise.models.towers.vision_tower import tower_blocks


def vision_tower(c: Config, name: str) -> tuple[Block, ...]:
    """Embedding, encoder layers, merger; they run only for batches with images."""
    c = c.filled(DEFAULTS["qwen3_vl_vision"])
    c = Config({**c.values, "deepstack_visual_indexes": []}, c.model_id)
    b = BlockBuilder(name, part="projector", modality="image")
    merged = qwen3_merger(b, b.input("image", c.hidden_size), c)
    return (*tower_blocks(c, qwen3(c), name), b.build(image=merged))
