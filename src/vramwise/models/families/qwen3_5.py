"""Qwen 3.5: the language model of Qwen 3 Next with products of their own, dense or with experts, and a vision tower."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import qwen3_next
from vramwise.models.towers.qwen3_vision import vision_tower
from vramwise.models.towers.vision_tower import image_tokens

# Defaults of the configuration classes (transformers 5.23).
_DEFAULTS: dict[str, dict[str, object]] = {
    "qwen3_5_text": {
        **qwen3_next.SHARED, "vocab_size": 248_320, "hidden_size": 4096, "intermediate_size": 12_288,
        "num_hidden_layers": 32, "num_key_value_heads": 4,
    },
    "qwen3_5_moe_text": {
        **qwen3_next.SHARED, "vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 8, "num_experts": 256,
    },
}  # fmt: skip


def language(c: Config, root: str = "model") -> tuple[Block, ...]:
    return qwen3_next.language(c.filled(_DEFAULTS[c.model_type]), root)


def blocks(c: Config) -> tuple[Block, ...]:
    """The language model, and as it is published its vision tower before it."""
    if c.model_type in _DEFAULTS:
        return language(c)
    given, tied = c.table("text_config") or Config({}), c.flag("tie_word_embeddings")
    own = {"model_type": f"{c.model_type}_text", "tie_word_embeddings": tied}
    text = Config({**given.values, **own}, c.model_id)
    if any("ForCausalLM" in str(name) for name in c.items("architectures") or ()):
        return language(text)
    vision = c.table("vision_config") or Config({}, c.model_id)
    embedding, *layers = language(text, "model.language_model")
    placed = image_tokens(embedding.outputs["hidden"].width)
    return (*vision_tower(vision, "model.visual"), embedding, placed, *layers)
