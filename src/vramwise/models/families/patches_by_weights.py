"""Models whose patches of images pass weights that are known and a computation that is not described.

Hunyuan VL and 4 VL, Inkling 2, LFM 3 VL, Granite 4 Vision, Granite Docling: tower, projector and a language model of
its own family. Counted is every weight and all that text keeps; not what training on images keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.towers import patches
from vramwise.models.towers.known_weights import known_weights
from vramwise.models.towers.tower_design import Weight
from vramwise.models.towers.towers_by_type import DEFAULTS, TOWERS
from vramwise.models.towers.vision_tower import tower_blocks
from vramwise.records import record


@record
class Patches:
    """What lies around a language model of type `text_type`, whose inner model is named `text`.

    `ends` are the weights before and after the tower's layers, `layer` those of one of them, by its number; both read
    the tower's config over `defaults`, and the language model's width. `bare`: the head is a norm and one product.
    """

    text_type: str
    ends: Callable[[Config, int], Iterable[Weight]]
    layer: Callable[[Config, int], Iterable[Weight]]
    defaults: dict[str, object]
    tower: str = "model.vision_tower"
    layers: str = "layers"
    text: str = "model.language_model"
    tied: bool = False
    text_ties: bool = False
    bare: bool = True


PATCHES = {
    "granite_docling": Patches(
        "granite_docling_text", patches.docling_ends, patches.clip_layer, patches.DOCLING, "model.vision_model",
        "encoder.layers", "model.text_model", tied=True, bare=False,
    ),
    "hunyuan_vl": Patches(
        "hunyuan_vl_text", patches.hunyuan_ends, patches.hunyuan_layer, patches.HUNYUAN, tied=True, text_ties=True,
    ),
    "hy_v4_vl": Patches("hy_v4_vl_text", patches.hy4_ends, patches.hunyuan_layer, patches.HY4),
    "inkling2": Patches("inkling2_text", patches.inkling2_ends, patches.inkling2_layer, patches.INKLING2, bare=False),
    "lfm3_vl": Patches("lfm3", patches.lfm3_ends, patches.lfm3_layer, patches.LFM3, tied=True),
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, projector, language model."""
    if c.model_type == "granite4_vision":
        return granite4_vision(c)
    p = PATCHES[c.model_type]
    text = text_config(c, p.text_type, {})
    tied = c.flag("tie_word_embeddings", p.tied) or (p.text_ties and text.flag("tie_word_embeddings"))
    tower = (c.table("vision_config") or Config({}, c.model_id)).filled(p.defaults)
    seen = [
        known_weights(f"{p.tower}.{p.layers}.{i}", p.layer(tower, i), "a layer over patches")
        for i in range(tower.num_hidden_layers)
    ]
    ends = known_weights(p.tower, p.ends(tower, text.hidden_size), "patches of an image")
    beside = patches.beside(c, tower, text.hidden_size)
    around = [known_weights("model", beside, "what joins patches", part="projector")] if beside else []
    return (ends, *seen, *around, *language_blocks(text, p.text, tied=tied, capped=not p.bare))


def granite4_vision(c: Config) -> tuple[Block, ...]:
    """A tower of any described kind, a Q-Former over windows for each layer that is read, Granite."""
    given = c.table("vision_config") or Config({}, c.model_id)
    kind = given.model_type or "clip_vision_model"
    if kind not in TOWERS:
        raise c.error(f"vision_config: model_type {kind} is not described yet")
    tower = Config({**given.filled(DEFAULTS[kind]).values, "model_type": kind}, c.model_id)
    text = text_config(c, "granite4_vision_text", {})
    layers = c.items("deepstack_layer_map")
    if not layers:
        raise c.error("deepstack_layer_map: expected pairs of a layer of the tower and one of the language model")
    weights = patches.window_former(c, tower, text.hidden_size)
    named: list[tuple[str, Any]] = [(f"layerwise_projectors.{i}", weights) for i in range(len(layers))]
    named += [(f"spatial_projectors.{i}", weights) for i in range(4)]
    projectors = [known_weights(f"model.{name}", found, "a Q-Former", part="projector") for name, found in named]
    newline = known_weights("model", [("image_newline", (text.hidden_size,))], "ends of rows", part="projector")
    tied = c.flag("tie_word_embeddings") or text.flag("tie_word_embeddings")
    language = language_blocks(text, "model.language_model", tied=tied, capped=True)
    return (*tower_blocks(tower, TOWERS[kind](tower), "model.vision_tower"), *projectors, newline, *language)
