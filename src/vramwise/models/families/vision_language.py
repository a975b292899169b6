"""Models that read images or sound beside text: a tower, a projector and a language model put together."""

from __future__ import annotations

from vramwise.errors import clipped
from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.towers import other_towers, qwen_vision, vision_kinds
from vramwise.models.towers.assemblies import ASSEMBLIES, Assembly
from vramwise.models.towers.projectors import Ends, deep
from vramwise.models.towers.vision_tower import UNREAD, Tower, image_tokens, tower_blocks

TOWERS = {**vision_kinds.TOWERS, **qwen_vision.TOWERS, **other_towers.TOWERS}
DEFAULTS = {**vision_kinds.DEFAULTS, **qwen_vision.DEFAULTS, **other_towers.DEFAULTS}


def tower_config(c: Config, a: Assembly) -> Config:
    """The tower's config with its class's defaults; one that is absent altogether has the model class's."""
    given = c.table(a.config) or Config(dict(a.absent_tower), c.model_id)
    kind = a.tower_type if a.own_tower else given.model_type or a.tower_type
    if kind not in TOWERS:
        raise c.error(f"{a.config}: model_type {kind} is not described yet; described are {', '.join(TOWERS)}")
    return Config({**given.filled(DEFAULTS[kind]).values, "model_type": kind}, c.model_id)


def bridge_blocks(c: Config, a: Assembly, tower: Tower, ends: Ends) -> list[Block]:
    """The projector, and the learned end of a row of patches where there is one."""
    b = BlockBuilder(a.bridge, part="projector", modality=tower.modality)
    x = a.projector(b, b.input(tower.modality, tower.width), ends)
    bridge = [b.build(**{tower.modality: x})]
    if a.newline:
        b = BlockBuilder("model", part="projector", modality=tower.modality)
        newline = b.parameter("", "image_newline", (ends.width,))
        bridge.append(b.build(image=b.unary("newlines", b.input("image", x.width), "", [newline])))
    return bridge


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower and projector, which run only for batches with such input, and the language model."""
    a = ASSEMBLIES[c.model_type]
    text = text_config(c, a.text_type, dict(a.absent_text))
    tied = a.tied is not None and c.flag("tie_embedding", c.flag("tie_word_embeddings", a.tied))
    tied = tied or (a.text_ties and text.flag("tie_word_embeddings"))
    if a.text_class and a.text_class in (c.items("architectures") or []):
        return language_blocks(text, "model", tied=tied)
    config = tower_config(c, a)
    tower = TOWERS[config.model_type](config)
    taken = layers_taken(c, a, tower)
    bridge = bridge_blocks(c, a, tower, Ends(c, config, text.hidden_size, taken, a.select, a.cut_joined))
    embedding, *language = language_blocks(text, a.text, tied=tied, head=a.head, capped=a.capped)
    language = with_deep_images(language, len(tower.tapped), text.hidden_size)
    towers = tower_blocks(config, tower, a.tower, max(taken, default=None), frozenset(taken))
    return (*towers, *unused(config, a, tower), *bridge, embedding, *scattered(a, text), *language)


def unused(c: Config, a: Assembly, tower: Tower) -> tuple[Block, ...]:
    """The weights of a second tower that images do not pass."""
    if not a.unused_tower:
        return ()
    b = BlockBuilder("", part=tower.part, modality=tower.modality, no_grad=True)
    weights = [weight for block in tower_blocks(c, tower, a.unused_tower) for weight in block.parameters]
    return (b.build(**{UNREAD: b.unary("hold", b.input(tower.modality, tower.width), "", weights)}),)


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


def with_deep_images(language: list[Block], count: int, width: int) -> list[Block]:
    """The language model with what the tower hands to each of its first `count` layers, added behind them."""
    found: list[Block] = []
    layers = 0
    for block in language:
        found.append(block)
        if block.layer is not None and layers < count:
            b = BlockBuilder("", modality="image")
            x, image = b.input("hidden", width), b.input(deep(layers), width)
            found.append(b.build(hidden=b.op("add_to_image_tokens", "", [x, image], [width])[0]))
        layers += block.layer is not None
    return found


def scattered(a: Assembly, text: Config) -> tuple[Block, ...]:
    """The tower's tokens in their places of the prompt; nothing where that is not described."""
    if not a.scatters:
        return ()
    return (image_tokens(text.hidden_size, see_each_other=a.see_each_other, listed=a.listed),)


def loss(c: Config) -> str:
    """The loss that a class computes itself."""
    return "shifted-lm" if c.model_type == "qwen2_audio" else ""
