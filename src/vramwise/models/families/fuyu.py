"""Fuyu: Persimmon's decoder, which reads patches of images through one product."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.operations.undescribed import Undescribed

# What FuyuConfig (transformers 5.23) gives a text config that is absent.
_TEXT: dict[str, object] = {
    "vocab_size": 262_144, "hidden_size": 4096, "intermediate_size": 16_384, "num_hidden_layers": 36,
    "num_attention_heads": 64, "hidden_act": "relu2", "qk_layernorm": True,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """The product of patches, which runs only for batches with images, and the language model."""
    text = text_config(c, "persimmon", _TEXT)
    pixels = c.size("patch_size", default=30) ** 2 * c.size("num_channels", default=3)
    b = BlockBuilder("model", part="projector", modality="image")
    image = b.linear(
        b.op(Undescribed(name="pixels read as they are"), "", [], [pixels])[0],
        "vision_embed_tokens",
        text.hidden_size,
        bias=True,
    )
    language = language_blocks(text, "model.language_model", tied=c.flag("tie_word_embeddings"))
    return (b.build(image=image), *language)
