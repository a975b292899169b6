"""Llama 4's tower."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.attention import PLAIN
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.tiles import TurnedAsComplex, UnfoldedPatches
from vramwise.models.towers.tower_design import Tower, encoder_sizes, layer_norm, num_patches, own_size, pair


def llama4(c: Config) -> Tower:
    """Llama 4: patches unfolded for a product, a class token at the end, norms around the layers."""
    width, (height, breadth) = c.hidden_size, pair(c, "patch_size")
    return Tower(
        **encoder_sizes(c),
        before=(
            ("class_embedding", (width,)), ("positional_embedding_vlm", (num_patches(c) + 1, width)),
            ("patch_embedding.linear.weight", (width, c.size("num_channels") * height * breadth)),
            *layer_norm("layernorm_pre", width),
        ),
        after=layer_norm("layernorm_post", width), layers="model.layers", output="self_attn.o_proj",
        embedding=UnfoldedPatches(**own_size(c)), closing=LayerNorm(), attention_style=PLAIN,
        turned_by_row=TurnedAsComplex(),
        norms=("input_layernorm", "post_attention_layernorm"),
    )  # fmt: skip
