"""MiniCPM-V 4.6, 4.7 and OCR: SigLIP's layers, a merger of windows among them, further mergers, and Qwen 3.5."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families import qwen3_5
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.known_weights import known_weights, norms, product, products
from vramwise.models.towers.siglip_vision import siglip
from vramwise.models.towers.tower_defaults import SIGLIP
from vramwise.models.towers.tower_design import Weight, layer_norm
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks
from vramwise.records import replace

_MERGED = 4
"""Patches that each merger puts side by side (`MiniCPMV4_6DownsampleMLP`)."""


def window_merger(v: Config) -> list[Weight]:
    """Attention within windows, then their patches side by side in an MLP as much wider as they are many."""
    width = v.hidden_size
    sides = [Config({"side": side}, v.model_id).size("side") for side in v.items("window_kernel_size") or [2, 2]]
    count = sides[0] * sides[-1]
    joined, inner = width * count, v.intermediate_size * count
    names = [f"self_attn.{name}_proj" for name in ("k", "v", "q", "out")]
    return [
        *products(names, width, width), *norms(("layer_norm1",), width), *norms(("pre_norm",), joined),
        *product("linear_1", inner, joined), *product("linear_2", width, inner),
    ]  # fmt: skip


def merger(c: Config, width: int, out: int) -> list[Weight]:
    """As many rounds as the config says; the last one is as wide as the language model."""
    found: list[Weight] = []
    joined, rounds = _MERGED * width, c.size("merger_times", default=1)
    for index in range(rounds):
        name = f"mlp.{index}"
        found += [*layer_norm(f"{name}.pre_norm", joined), *product(f"{name}.linear_1", joined, joined),
                  *product(f"{name}.linear_2", out if index + 1 == rounds else width, joined)]  # fmt: skip
    return found


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, its mergers, language model."""
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(SIGLIP)
    v = Config({**v.values, "model_type": "minicpmv4_6_vision"}, c.model_id)
    given = c.table("text_config") or Config({}, c.model_id)
    own = {
        "model_type": "qwen3_5_text",
        "tie_word_embeddings": c.flag("tie_word_embeddings", c.model_type == "minicpm_ocr"),
    }
    embedding, *language = qwen3_5.language(Config({**given.values, **own}, c.model_id), "model.language_model")
    width, name = embedding.outputs["hidden"].width, "model.vision_tower"
    tower = replace(siglip(v), embedding=Undescribed(name="an embedding of patches"))
    return (
        *tower_blocks(v, tower, name), known_weights(f"{name}.vit_merger", window_merger(v), "a merger of windows"),
        known_weights("model.merger", merger(c, v.hidden_size, width), "mergers of patches", part="projector"),
        embedding, image_tokens(width), *language,
    )  # fmt: skip
