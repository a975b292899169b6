"""Between a tower and the language model: which layers are read, the projector, the tokens' places in the prompt."""

from __future__ import annotations

from vramwise.errors import clipped
from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.image_tokens import AddToImageTokens, Newlines
from vramwise.models.towers.projector_pieces import Ends, deep
from vramwise.models.towers.tower_design import Tower
from vramwise.models.towers.vision_language_design import Assembly
from vramwise.models.towers.vision_tower import image_tokens


def layers_taken(c: Config, a: Assembly, tower: Tower) -> tuple[int, ...]:
    """After how many of the tower's layers the results that are taken come; none for the whole tower's."""
    if a.features is None:
        return ()
    chosen = c.get("vision_feature_layer", a.features)
    layers = chosen if isinstance(chosen, list | tuple) else [chosen]
    if not all(isinstance(i, int) and abs(i) <= tower.num_layers + 1 for i in layers):
        raise c.error(
            f"vision_feature_layer: expected a layer of the tower, or several, got {clipped(str(chosen), 80)}"
        )
    return tuple(i + (tower.num_layers + 1 if i < 0 else 0) for i in layers) or (tower.num_layers,)


def bridge_blocks(c: Config, a: Assembly, tower: Tower, ends: Ends) -> list[Block]:
    """The projector, and the learned end of a row of patches where there is one."""
    b = BlockBuilder(a.bridge, part="projector", modality=tower.modality)
    x = a.projector(b, b.input(tower.modality, tower.width), ends)
    bridge = [b.build(**{tower.modality: x})]
    if a.newline:
        b = BlockBuilder("model", part="projector", modality=tower.modality)
        newline = b.parameter("", "image_newline", (ends.width,))
        bridge.append(b.build(image=b.unary(Newlines(), b.input("image", x.width), "", [newline])))
    return bridge


def scattered(a: Assembly, text: Config) -> tuple[Block, ...]:
    """The tower's tokens in their places of the prompt; nothing where that is not described."""
    if not a.scatters:
        return ()
    return (image_tokens(text.hidden_size, see_each_other=a.see_each_other, listed=a.listed),)


def with_deep_images(language: list[Block], count: int, width: int) -> list[Block]:
    """The language model with what the tower hands to each of its first `count` layers, added behind them."""
    found: list[Block] = []
    layers = 0
    for block in language:
        found.append(block)
        if block.layer is not None and layers < count:
            b = BlockBuilder("", modality="image")
            x, image = b.input("hidden", width), b.input(deep(layers), width)
            found.append(b.build(hidden=b.op(AddToImageTokens(), "", [x, image], [width])[0]))
        layers += block.layer is not None
    return found
