"""Small models of GIT, whose images come before the text without tokens of the prompt, and batches for them."""

from __future__ import annotations

from typing import Any

import torch
from image_batches import TOWER, Case

from vramwise.models.execution import Images

GIT: dict[str, Any] = {
    "model_type": "git", "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 24, "max_position_embeddings": 40, "vision_config": {**TOWER, "model_type": "git_vision_model"},
}  # fmt: skip


def leading(config: dict[str, Any], images: Images, count: int) -> dict[str, Any]:
    """An image for each sequence, or its frames; ids and labels are the text's."""
    rows, side = count // images.per_sequence, config["vision_config"]["image_size"]
    frames = (images.per_sequence,) if config.get("num_image_with_embedding") else ()
    text = torch.zeros(rows, images.per_sequence + 2, dtype=torch.int64)
    return {"pixel_values": torch.zeros(rows, *frames, 3, side, side), "input_ids": text, "labels": text.clone()}


CASES: dict[str, Case] = {
    "git": (GIT, Images(1, 3, 3, tokens=10), leading),
    "git with frames": ({**GIT, "num_image_with_embedding": 2}, Images(2, 3, 3, tokens=10), leading),
}
