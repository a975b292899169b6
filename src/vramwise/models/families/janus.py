"""Janus: a tower that reads images, a Llama, and the parts with which it makes images."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.towers.janus_vision import VISION, generation_blocks, tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks


def aligner(v: Config, name: str = "model.aligner") -> Block:
    """Products, as many as `depth` says, with an activation between two."""
    b = BlockBuilder(name, part="projector", modality="image")
    width = v.size("projection_dim")
    x = b.linear(b.input("image", v.hidden_size), "fc1", width, bias=True)
    for i in range(v.size("depth") - 1):
        x = b.linear(b.activation(x, v.text("hidden_act"), ""), f"hidden_layers.{i}", width, bias=True)
    return b.build(image=x)


def blocks(c: Config) -> tuple[Block, ...]:
    """The tower and its projector, which run only for batches with images, and the language model."""
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(VISION)
    text, name = text_config(c, "llama", {}), "model.vision_model"
    embedding, *language = language_blocks(text, "model.language_model", tied=c.flag("tie_word_embeddings", True))
    making = generation_blocks(c.table("vq_config") or Config({}, c.model_id))
    images = (*tower_blocks(v, tower(v), name), aligner(v), *making)
    return (*images, embedding, image_tokens(text.hidden_size, listed=False), *language)
