"""Models that read images or sound beside text: a tower, a projector and a language model put together."""

from __future__ import annotations

from vramwise.errors import nearest
from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.language import language_blocks, text_config
from vramwise.models.operations.simple import Hold
from vramwise.models.towers.bridge import bridge_blocks, layers_taken, scattered, with_deep_images
from vramwise.models.towers.projector_pieces import Ends
from vramwise.models.towers.tower_design import Tower
from vramwise.models.towers.towers_by_type import DEFAULTS, TOWERS
from vramwise.models.towers.vision_language_design import Assembly
from vramwise.models.towers.vision_language_models import ASSEMBLIES
from vramwise.models.towers.vision_tower import UNREAD, tower_blocks


def tower_config(c: Config, a: Assembly) -> Config:
    """The tower's config with its class's defaults; one that is absent altogether has the model class's."""
    given = c.table(a.config) or Config(dict(a.absent_tower), c.model_id)
    kind = a.tower_type if a.own_tower else given.model_type or a.tower_type
    if kind not in TOWERS:
        near = nearest(kind, TOWERS, 5)
        meant = f"; did you mean {', '.join(near)}?" if near else f"; {len(TOWERS)} others are"
        raise c.error(f"{a.config}: model_type {kind} is not described yet{meant}")
    return Config({**given.filled(DEFAULTS[kind]).values, "model_type": kind}, c.model_id)


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
    return (b.build(**{UNREAD: b.unary(Hold(), b.input(tower.modality, tower.width), "", weights)}),)


def loss(c: Config) -> str:
    """The loss that a class computes itself."""
    return "shifted-lm" if c.model_type == "qwen2_audio" else ""
