"""ShieldGemma 2: Gemma 3 with images, asked for the probabilities of yes and no."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under


def blocks(c: Config) -> tuple[Block, ...]:
    """Gemma 3 under a name; a text config that ties its head ties that of the whole."""
    text = c.table("text_config") or Config({}, c.model_id)
    tied = c.flag("tie_word_embeddings") or text.flag("tie_word_embeddings", True)
    inner = {**c.values, "model_type": "gemma3", "tie_word_embeddings": tied}
    return language_model(Config(inner, c.model_id), under("model"))
