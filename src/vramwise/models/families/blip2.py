"""BLIP-2 and InstructBLIP: a tower over patches, a Q-Former with learned queries, and OPT, Llama or T5 behind it.

Prompts of InstructBLIP go through the Q-Former too. What training keeps of tower and Q-Former is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.known_weights import known_weights, product
from vramwise.models.towers.query_former import DEFAULTS, query_former
from vramwise.models.towers.tower_design import Tower, Weight, encoder_sizes, layer_norm, num_patches, pair, with_bias
from vramwise.models.towers.vision_tower import tower_blocks

_VISION: dict[str, object] = {
    "hidden_size": 1408, "intermediate_size": 6144, "num_hidden_layers": 39, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 14, "hidden_act": "gelu",
}  # fmt: skip
"""Defaults of `Blip2VisionConfig` and of InstructBLIP's (transformers 5.23)."""
_OPT: dict[str, object] = {
    "vocab_size": 50_272, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "ffn_dim": 3072,
}  # fmt: skip
"""Defaults of `OPTConfig`."""
_SEQ2SEQ = frozenset({"t5", "mt5", "umt5"})


def task(c: Config) -> str:
    """With T5 behind the Q-Former the image and the prompt go into its encoder."""
    return "seq2seq-lm" if text_of(c).model_type in _SEQ2SEQ else "causal-lm"


def counted_as(c: Config) -> str:
    """What an estimate of a batch of text says."""
    return "the class computes a loss only where an image comes with each text"


def text_of(c: Config) -> Config:
    """The language model's config; OPT where none is named."""
    text = c.table("text_config") or Config({}, c.model_id)
    if text.model_type in ("", "opt"):
        return Config({**text.filled(_OPT).values, "model_type": "opt"}, c.model_id)
    return text


def tower(v: Config) -> Tower:
    """A class token, patches and positions in one table; one product for queries, keys and values."""
    width = v.hidden_size
    weights: tuple[Weight, ...] = (
        ("embeddings.class_embedding", (1, 1, width)),
        ("embeddings.position_embedding", (1, num_patches(v) + 1, width)),
        *with_bias("embeddings.patch_embedding", width, 3, *pair(v, "patch_size")),
    )
    return Tower(
        **encoder_sizes(v), before=weights, after=layer_norm("post_layernorm", width),
        biases=(v.flag("qkv_bias", True), True, True, True), qkv=("self_attn.qkv",), output="self_attn.projection",
        closing=Undescribed(name="a tower's norm"),
    )  # fmt: skip


def bridge(c: Config, v: Config, width: int) -> list[Block]:
    """Learned queries, the Q-Former that reads the tower with them, and a product."""
    former = (c.table("qformer_config") or Config({}, c.model_id)).filled(DEFAULTS)
    embedded = c.model_type != "blip-2"
    prompts = embedded or former.flag("use_qformer_text_input")
    weights = query_former(former, text=prompts, embedded=embedded, read=v.hidden_size)
    queries: Weight = ("query_tokens", (1, c.size("num_query_tokens", default=32), former.hidden_size))
    last = [queries, *product("language_projection", width, former.hidden_size)]
    return [
        known_weights("qformer", weights, "a Q-Former", part="projector"),
        known_weights("", last, "learned queries", part="projector"),
    ]


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, Q-Former, language model."""
    v, text = (c.table("vision_config") or Config({}, c.model_id)).filled(_VISION), text_of(c)
    language = language_model(text, under("language_model"))
    width = text.size("hidden_size", "d_model", default=768 if text.model_type == "opt" else 512)
    return (*tower_blocks(v, tower(v), "vision_model"), *bridge(c, v, width), *language)
