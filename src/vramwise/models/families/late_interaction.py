"""ColPali and ColQwen 2: a model with images whose head is a product to short vectors, one for each token.

Their code path is that of the model inside; `vlm_config` says which.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model
from vramwise.records import replace

_INSIDE = {"colpali": "paligemma", "colqwen2": "qwen2_vl"}


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "none"


def headless(block: Block) -> Block:
    """The last block without the product to the vocabulary."""
    last = next(i for i, op in enumerate(block.ops) if any(p.part == "head" for p in op.parameters))
    return replace(block, ops=block.ops[:last], outputs={"hidden": block.ops[last].inputs[0]})


def blocks(c: Config) -> tuple[Block, ...]:
    """The model inside, its norm, and the product."""
    given = c.table("vlm_config") or Config({}, c.model_id)
    vlm = Config({**given.values, "model_type": given.model_type or _INSIDE[c.model_type]}, c.model_id)
    *inner, last = language_model(vlm, lambda name: f"vlm.{name.removeprefix('model.')}")
    last = headless(last)
    b = BlockBuilder("", part="head")
    x = b.input("hidden", last.outputs["hidden"].width)
    short = b.linear(x, "embedding_proj_layer", c.size("embedding_dim", default=128), bias=True, part="head")
    return (*inner, last, b.build(embedding=short))
