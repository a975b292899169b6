"""Dots 3 with its towers for images and sound, or its language model alone."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import dots3_text
from vramwise.models.families.nested import inside, renamed
from vramwise.models.towers.dots3_sound import audio_tower
from vramwise.models.towers.dots3_vision import vision_tower


def holds_towers(c: Config) -> bool:
    return c.model_type == "dots3_note" and "Dots3NoteForCausalLM" not in (c.items("architectures") or [])


def not_counted(c: Config) -> str:
    """What an estimate says that it leaves out."""
    return "activations of images and sound" if holds_towers(c) else ""


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers, which run only for batches with such input, and the language model, whose sizes may stand beside them."""
    if not holds_towers(c):
        return dots3_text.blocks(c)
    text = c.table("text_config") or c
    text = Config(
        {**text.values, "text_config": None, "tie_word_embeddings": c.flag("tie_word_embeddings")}, c.model_id
    )
    vision, audio = (c.table(name) or Config({}, c.model_id) for name in ("vision_config", "audio_config"))
    towers = (*vision_tower(vision, "model.vision_tower"), *audio_tower(audio, "model.audio_tower"))
    return (*towers, *(renamed(block, inside("model.language_model")) for block in dots3_text.blocks(text)))
