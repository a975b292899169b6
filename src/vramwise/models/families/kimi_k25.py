"""Kimi K2.5: a vision tower over patches of frames, a projector, and DeepSeek V3's text model (as Kimi K2's)."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, language_model
from vramwise.models.operations.frames import GatheredSquares, JoinGathered
from vramwise.models.towers.kimi_vision import kimi_config, kimi_tower
from vramwise.models.towers.vision_tower import image_tokens, tower_blocks


def projector(c: Config, v: Config, name: str, width: int) -> Block:
    """Patches gathered by squares, a norm of each, squares side by side, two products."""
    b = BlockBuilder(name, part="projector", modality="image")
    rows, columns = v.sides("merge_kernel_size", (2, 2))
    joined = v.hidden_size * rows * columns
    x = b.unary(GatheredSquares(tokens=rows * columns), b.input("image", v.hidden_size))
    if x.width != c.size("projection_hidden_size", default=1152):
        raise c.error(f"projection_hidden_size: expected the tower's hidden_size ({x.width}), whose norm it is")
    x = b.unary(JoinGathered(), b.layer_norm(x, "pre_norm", part="projector"), width=joined)
    h = b.linear(x, "in_proj", joined, bias=True)
    return b.build(image=b.linear(b.activation(h, "gelu"), "out_proj", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v, text = kimi_config(c), c.table("text_config") or Config({}, c.model_id)
    kind = text.text("model_type", "deepseek_v3")
    kind = "deepseek_v3" if kind == "kimi_k2" else kind
    tied = c.flag("tie_word_embeddings", True)
    text = Config({**text.values, "model_type": kind, "tie_word_embeddings": tied}, c.model_id)
    embedding, *language = language_model(text, inside("model.language_model"))
    width = language[-1].inputs["hidden"].width
    return (
        *tower_blocks(v, kimi_tower(v), "model.vision_tower"), projector(c, v, "model.mm_projector", width), embedding,
        image_tokens(width), *language,
    )  # fmt: skip
