"""Llama 3.2 Vision's tower: a plain encoder with positions of patches and tiles, then gated layers over all tiles."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.operations.tiles import TILES, TilesBetween, TilesEmbedding
from vramwise.models.towers.tower_design import Tower, layer_norm, num_patches, own_size, pair
from vramwise.models.towers.vision_tower import layer, tower_blocks

_TILINGS = [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]
DEFAULTS: dict[str, object] = {
    "hidden_size": 1280, "hidden_act": "gelu", "num_hidden_layers": 32, "num_global_layers": 8, "attention_heads": 16,
    "num_channels": 3, "intermediate_size": 5120, "vision_output_dim": 7680, "image_size": 448, "patch_size": 14,
    "intermediate_layers_indices": [3, 7, 15, 23, 30],
    "max_num_tiles": 4, "supported_aspect_ratios": _TILINGS,
}  # fmt: skip
"""Defaults of MllamaVisionConfig (transformers 5.23)."""


def vision_blocks(c: Config, name: str) -> tuple[Block, ...]:
    """A plain encoder with positions of patches and tiles, then gated layers over all tiles."""
    width, tiles, tilings = c.hidden_size, c.size("max_num_tiles"), len(c.items("supported_aspect_ratios") or []) + 1
    positions, tile = num_patches(c) + 1, "tile_positional_embedding"
    own = "gated_positional_embedding"
    plain = Tower(
        width, c.intermediate_size, c.num_hidden_layers, c.size("attention_heads"), c.text("hidden_act"),
        before=(
            ("class_embedding", (width,)),
            ("patch_embedding.weight", (width, c.size("num_channels"), *pair(c, "patch_size"))),
            (f"{own}.gate", (1,)), (f"{own}.embedding", (positions, width)),
            (f"{own}.tile_embedding.weight", (tilings, tiles * positions * width)), (f"pre_{tile}.gate", (1,)),
            (f"pre_{tile}.embedding.weight", (tilings, tiles * width)), *layer_norm("layernorm_pre", width),
        ),
        after=(
            *layer_norm("layernorm_post", width), (f"post_{tile}.gate", (1,)),
            (f"post_{tile}.embedding.weight", (tilings, tiles * width)),
        ),
        layers="transformer.layers", norms=("input_layernorm", "post_attention_layernorm"), biases=(False,) * 4,
        output="self_attn.o_proj", embedding=TilesEmbedding(**own_size(c), tiles=tiles), attention_style=TILES,
        closing=TilesBetween(), tapped=frozenset(map(int, c.items("intermediate_layers_indices") or ())),
    )  # fmt: skip
    scales = ("gate_attn", "gate_ffn")
    gated = replace(plain, layers="global_transformer.layers", scales=scales, scale_width=1, tapped=frozenset())
    layers = (layer(gated, name, i) for i in range(c.size("num_global_layers", least=0)))
    return (*tower_blocks(c, plain, name), *layers)
