"""What differs between models that are a tower, a projector and a language model put together."""

from __future__ import annotations

from typing import Literal

from vramwise.models.towers.projector_pieces import Projector
from vramwise.records import record


@record
class Assembly:
    """What differs between these models.

    `tower_type` and `text_type` are those of configs that name none; a tower of one's own replaces whatever type the
    table `config` names. `absent_tower` and `absent_text` are the values of a table that is absent altogether.
    `tied` is the default, None where only the text config counts; `text_ties`: a flag in the text config ties too.
    `newline`: a learned token ends rows of patches. `text_class` is the class of checkpoints that hold the language
    model alone; `capped`: its cap on the logits is kept. `features`: the default of the layer whose result is taken,
    None where it is the whole tower's; `scatters`: the tower's tokens take the places of tokens of the prompt, and
    `see_each_other`: in which layers those of an image look at all of its own; `listed`: they come as a list of images.
    `features` may name several layers; `select` and `cut_joined` are those of `Ends`. `unused_tower`: another
    such tower, for video.
    """

    tower_type: str
    text_type: str
    projector: Projector
    own_tower: bool = False
    config: str = "vision_config"
    tower: str = "model.vision_tower"
    bridge: str = "model.multi_modal_projector"
    text: str = "model.language_model"
    head: str = "lm_head"
    tied: bool | None = False
    text_ties: bool = False
    absent_tower: tuple[tuple[str, object], ...] = ()
    absent_text: tuple[tuple[str, object], ...] = ()
    newline: bool = False
    text_class: str = ""
    capped: bool = False
    features: int | tuple[int, ...] | None = None
    select: str = "default"
    cut_joined: bool = False
    scatters: bool = False
    see_each_other: Literal["", "windows", "all"] = ""
    listed: bool = True
    unused_tower: str = ""
