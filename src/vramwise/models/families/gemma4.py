"""Gemma 4 with its towers for images and sound, each there if its config is.

The unified models have no towers: pixels and samples are projected as they are.
"""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks
from vramwise.models.operations.attention import Attention
from vramwise.models.towers.gemma4_vision import VISION_DEFAULTS, embedder, pixels, tower
from vramwise.models.towers.gemma_sound import AUDIO_DEFAULTS, audio_tower
from vramwise.models.towers.vision_tower import image_tokens


def towers(c: Config, width: int) -> list[Block]:
    """What turns images and sound into vectors of the language model's width."""
    unified, parts = c.model_type == "gemma4_unified", list[Block]()
    vision, audio = c.table("vision_config"), c.table("audio_config")
    if vision is not None and unified:
        parts += [*pixels(vision, "model.embed_vision", width)]
    elif vision is not None:
        vision = vision.filled(VISION_DEFAULTS)
        parts += [*tower(vision, "model.vision_tower")]
        parts += [embedder("model.embed_vision", "image", vision.hidden_size, width)]
    if audio is not None and unified:
        parts += [embedder("model.embed_audio", "audio", audio.size("audio_embed_dim", default=640), width)]
    elif audio is not None:
        audio = audio.filled(AUDIO_DEFAULTS)
        parts += [*audio_tower(audio, "model.audio_tower")]
        parts += [embedder("model.embed_audio", "audio", audio.size("output_proj_dims"), width)]
    return parts


def blocks(c: Config) -> tuple[Block, ...]:
    """Towers with their projectors, which run only for batches with such input, and the language model."""
    given = c.table("text_config") or Config({}, c.model_id)
    text = Config({**given.values, "model_type": f"{c.model_type}_text"}, c.model_id)
    tied = c.flag("tie_word_embeddings", True)
    if {"Gemma4ForCausalLM", "Gemma4UnifiedForCausalLM"} & set(map(str, c.items("architectures") or [])):
        return language_blocks(text, "model", tied=tied, capped=True)
    embedding, *language = language_blocks(text, "model.language_model", tied=tied, capped=True)
    width = text.size("hidden_size", default=2304)
    bidirectional = text.text("use_bidirectional_attention") == "vision"
    if bidirectional and c.model_type == "gemma4_unified":
        language = [_masked(block) for block in language]
    images = () if c.table("vision_config") is None else (
        image_tokens(width, see_each_other="windows" if bidirectional else ""),
    )  # fmt: skip
    return (*towers(c, width), embedding, *images, *language)


def _masked(block: Block) -> Block:
    """Attention that is handed a mask whether or not a batch holds images."""
    ops = (replace(op, masked=True) if isinstance(op, Attention) else op for op in block.ops)
    return replace(block, ops=tuple(ops))
