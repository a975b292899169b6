"""GIT: a causal post-norm decoder that reads a CLIP tower's patches before the text."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.bert_layer import layer
from vramwise.models.layers.encoder_design import Design
from vramwise.models.operations.images_before_text import ImagesBeforeText, ImagesOfSequence
from vramwise.models.operations.simple import AddInPlace, Embedding
from vramwise.models.towers.clip_vision import clip
from vramwise.models.towers.tower_defaults import DEFAULTS
from vramwise.models.towers.vision_tower import tower_blocks

# Defaults of GitConfig and GitVisionConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 3072, "max_position_embeddings": 1024,
}  # fmt: skip
_VISION = {**DEFAULTS["clip_vision_model"], "patch_size": 16}


def loss(c: Config) -> str:
    """Of the text alone, its logits shifted by a copy."""
    return "text-after-images-lm"


def counted_as(c: Config) -> str:
    """What an estimate of a batch of text says."""
    count = frames(c) or 1
    return (
        f"the class computes a loss only where {count} image{'s' * (count > 1)} come{'s' * (count == 1)} before a text"
    )


def frames(c: Config) -> int:
    """Frames of a video that a sequence begins with; 0 for models of single images."""
    count = c.size("num_image_with_embedding", default=0, least=0)
    if count > c.size("max_position_embeddings", default=_DEFAULTS["max_position_embeddings"]):
        raise c.error(f"num_image_with_embedding ({count}) is more than max_position_embeddings")
    return count


def projector(c: Config, width: int) -> Block:
    """A product and a norm; before them an embedding for each frame of a video where there are such."""
    b = BlockBuilder("git", part="projector", modality="image")
    x, count = b.input("image", width), frames(c)
    tables = [b.parameter("img_temporal_embedding", str(i), (1, 1, width)) for i in range(count)]
    x = b.unary(ImagesOfSequence(count=count or 1), x, "img_temporal_embedding", tables)
    module = "visual_projection.visual_projection"
    x = b.linear(x, f"{module}.0", c.hidden_size, bias=True)
    return b.build(image=b.layer_norm(x, f"{module}.1", part="projector"))


def images_first(width: int) -> Block:
    """The image's tokens before those of the text."""
    b = BlockBuilder("", modality="image")
    x, image = b.input("hidden", width), b.input("image", width)
    return b.build(hidden=b.op(ImagesBeforeText(), "", [x, image], [width])[0])


def embedding(c: Config) -> Block:
    """Tokens plus positions, norm, dropout."""
    b, rows = BlockBuilder("git.embeddings", part="embedding"), c.size("max_position_embeddings")
    x = b.embedding("word_embeddings", c.vocab_size, c.hidden_size, ids="text_input_ids")
    table = b.parameter("position_embeddings", "weight", (rows, x.width))
    positions = b.op(
        Embedding(ids="text_position_ids", buffer_rows=rows), "position_embeddings", [], [x.width], [table]
    )[0]
    x = b.layer_norm(b.op(AddInPlace(), "", [x, positions], [x.width])[0], "LayerNorm")
    return b.build(hidden=b.dropout(x, c.number("hidden_dropout_prob", 0.1)))


def blocks(c: Config) -> tuple[Block, ...]:
    """The tower and its projector, which run only for batches with images, and the decoder."""
    c = c.filled({**_DEFAULTS, "is_decoder": True})
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(_VISION)
    eyes = replace(clip(vision), eager_only=True)
    layers = [layer(c, Design(written_out=True), i, "git.") for i in range(c.num_hidden_layers)]
    b = BlockBuilder("", part="head")
    tied_to = "git.embeddings.word_embeddings.weight" if c.flag("tie_word_embeddings") else None
    head = b.linear(b.input("hidden", c.hidden_size), "output", c.vocab_size, bias=True, shard="vocab", tied_to=tied_to)
    images = (*tower_blocks(vision, eyes, "git.image_encoder.vision_model"), projector(c, eyes.width))
    return (*images, embedding(c), images_first(c.hidden_size), *layers, b.build(logits=head))
