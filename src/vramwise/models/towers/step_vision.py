"""Step 3.7's tower: rotary positions besides learned ones, layer scales, two convolutions that join patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import LARGEST_SIZE, Config
from vramwise.models.operations.simple import Hold
from vramwise.models.operations.whole_and_tiles import (
    HalvedTwice,
    ResizedPositionsEmbedding,
    TilesAndWhole,
    TurnedByGrid,
)
from vramwise.models.towers.tower_design import Tower, layer_norm, num_patches, with_bias
from vramwise.models.towers.vision_tower import tower_blocks

TILES = "tiles of them"
"""The stream of what tiles of images hold."""
DEFAULTS: dict[str, Any] = {
    "hidden_size": 1536, "num_hidden_layers": 47, "num_attention_heads": 16, "num_channels": 3, "image_size": 728,
    "patch_size": 14, "hidden_act": "quick_gelu", "mlp_ratio": 8960 / 1536,
}  # fmt: skip
"""Defaults of Step3p7VisionConfig (transformers 5.23)."""


def tower(v: Config, *, tiles: bool = False) -> Tower:
    """Rotary positions besides learned ones; two convolutions make one patch of sixteen, four times as wide.

    `tiles`: run over tiles of images, not over the whole.
    """
    width, patch = v.hidden_size, v.size("patch_size")
    ratio = v.number("mlp_ratio")
    if not 0 < ratio <= LARGEST_SIZE:
        raise v.error(f"mlp_ratio: expected a positive number, got {ratio}")
    return Tower(
        width, int(width * ratio), v.num_hidden_layers, v.num_attention_heads, v.text("hidden_act"), layers="layers",
        before=(
            ("embeddings.patch_embedding.weight", (width, v.size("num_channels"), patch, patch)),
            ("embeddings.position_embedding.weight", (num_patches(v), width)),
            *layer_norm("pre_layernorm", width),
        ),
        after=(
            *with_bias("downsampler1", 2 * width, width, 3, 3), *with_bias("downsampler2", 4 * width, 2 * width, 3, 3)
        ),
        norms=("layernorm_before", "layernorm_after"), scales=("lambda_1", "lambda_2"), scale_width=width,
        embedding=ResizedPositionsEmbedding(tiles=tiles), turned_by_row=TurnedByGrid(),
        closing=HalvedTwice(tiles=tiles),
    )  # fmt: skip


def whole_and_tiles(v: Config, width: int, *, bias: bool) -> tuple[Block, ...]:
    """Tower and projector over whole images and, where a batch has them, over tiles, whose tokens come before."""
    whole, tiles = (image_blocks(v, width, bias=bias, tiles=flag) for flag in (False, True))
    b = BlockBuilder("", modality="image")
    results = [b.input(name, width) for name in ("image", TILES)]
    joined = b.build(image=b.op(TilesAndWhole(), "", results, [width])[0])
    return (*whole, *map(of_tiles, tiles), replace(joined, tiled=True))


def image_blocks(v: Config, width: int, *, bias: bool, tiles: bool) -> tuple[Block, ...]:
    """Tower and projector over whole images or over tiles."""
    b = BlockBuilder("model", part="projector", modality="image")
    x = b.unary(Hold(), b.input("image", v.hidden_size), width=4 * v.hidden_size)
    projected = b.linear(x, "multi_modal_projector", width, bias=bias)
    return (*tower_blocks(v, tower(v, tiles=tiles), "model.vision_model"), b.build(image=projected))


def of_tiles(block: Block) -> Block:
    """The block on a stream of its own, which only batches with tiles have."""

    def renamed_streams(streams: Mapping[str, Value]) -> dict[str, Value]:
        return {name.replace("image", TILES): value for name, value in streams.items()}

    inputs, outputs = renamed_streams(block.inputs), renamed_streams(block.outputs)
    return replace(block, inputs=inputs, outputs=outputs, tiled=True)
