"""Models that read images beside text: a tower, a projector and a language model put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families import projectors, qwen_vision, vision_kinds
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.families.projectors import Ends, Projector
from vramwise.models.families.vision_tower import tower_blocks

TOWERS = {**vision_kinds.TOWERS, **qwen_vision.TOWERS}
DEFAULTS = {**vision_kinds.DEFAULTS, **qwen_vision.DEFAULTS}


@dataclass(frozen=True, slots=True)
class Assembly:
    """What differs between these models.

    `vision_type` and `text_type` are those of configs that name none; a tower of one's own replaces whatever type the
    vision config names. `tied` is the default; `text_ties`: a flag in the text config ties as well.
    """

    vision_type: str
    text_type: str
    projector: Projector
    own_tower: bool = False
    tower: str = "model.vision_tower"
    bridge: str = "model.multi_modal_projector"
    text: str = "model.language_model"
    head: str = "lm_head"
    tied: bool = False
    text_ties: bool = False
    absent_vision: tuple[tuple[str, Any], ...] = ()
    absent_text: tuple[tuple[str, Any], ...] = ()
    newline: bool = False


_LLAVA_TOWER = (
    ("hidden_size", 1024), ("intermediate_size", 4096), ("patch_size", 14), ("image_size", 336),
    ("num_hidden_layers", 24), ("num_attention_heads", 16),
)  # fmt: skip
_QWEN: dict[str, Any] = {"own_tower": True, "tower": "model.visual", "bridge": "model.visual.merger"}
_QWEN3 = {**_QWEN, "bridge": "model.visual"}
_IDEFICS: dict[str, Any] = {
    "own_tower": True, "tower": "model.vision_model", "bridge": "model.connector.modality_projection",
    "text": "model.text_model",
}  # fmt: skip
_ASSEMBLIES: dict[str, Assembly] = {
    "glm4v": Assembly("glm4v_vision", "glm4v_text", projectors.glm4v, **_QWEN, text_ties=True),
    "idefics3": Assembly("idefics3_vision", "llama", projectors.idefics3, **_IDEFICS),
    "internvl": Assembly("internvl_vision", "qwen2", projectors.internvl, own_tower=True, tied=True),
    "llava": Assembly(
        "clip_vision_model", "llama", projectors.llava, text_ties=True, absent_vision=_LLAVA_TOWER
    ),
    "llava_next": Assembly(
        "clip_vision_model", "llama", projectors.llava, absent_vision=_LLAVA_TOWER, newline=True
    ),
    "mistral3": Assembly(
        "pixtral", "mistral", projectors.mistral3, tied=True,
        absent_vision=(("patch_size", 14), ("image_size", 1540)),
        absent_text=(("head_dim", 128), ("hidden_size", 5120), ("intermediate_size", 32_768),
                     ("num_hidden_layers", 40), ("vocab_size", 131_072), ("sliding_window", 0)),
    ),
    "qwen2_5_vl": Assembly("qwen2_5_vl_vision", "qwen2_5_vl_text", projectors.qwen2_vl, **_QWEN, text_ties=True),
    "qwen2_vl": Assembly("qwen2_vl_vision", "qwen2_vl_text", projectors.qwen2_vl, **_QWEN, text_ties=True),
    "qwen3_vl": Assembly("qwen3_vl_vision", "qwen3_vl_text", projectors.qwen3_vl, **_QWEN3),
    "qwen3_vl_moe": Assembly("qwen3_vl_moe_vision", "qwen3_vl_moe_text", projectors.qwen3_vl, **_QWEN3),
    "smolvlm": Assembly("idefics3_vision", "llama", projectors.idefics3, **_IDEFICS),
}  # fmt: skip


def vision_config(c: Config, a: Assembly) -> Config:
    """The vision config with its class's defaults; one that is absent altogether has the model class's."""
    given = c.table("vision_config")
    vision = given or Config(dict(a.absent_vision), c.model_id)
    kind = a.vision_type if a.own_tower else vision.model_type or a.vision_type
    if kind not in TOWERS:
        raise c.error(f"vision_config: model_type {kind} is not described yet; described are {', '.join(TOWERS)}")
    return Config({**vision.filled(DEFAULTS[kind]).values, "model_type": kind}, c.model_id)


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower and projector, which run only for batches with images, and the language model."""
    a = _ASSEMBLIES[c.model_type]
    vision = vision_config(c, a)
    text = text_config(c, a.text_type, dict(a.absent_text))
    tower = TOWERS[vision.model_type](vision)
    b = BlockBuilder(a.bridge, part="projector", modality="image")
    image = a.projector(b, b.input("image", tower.width), Ends(c, vision, text.hidden_size))
    bridge = [b.build(image=image)]
    if a.newline:
        b = BlockBuilder("model", part="projector", modality="image")
        newline = b.parameter("", "image_newline", (text.hidden_size,))
        bridge.append(b.build(image=b.unary("newlines", b.input("image", image.width), "", [newline])))
    tied = c.flag("tie_word_embeddings", a.tied) or (a.text_ties and text.flag("tie_word_embeddings"))
    return (*tower_blocks(vision, tower, a.tower), *bridge, *language_blocks(text, a.text, tied=tied, head=a.head))
