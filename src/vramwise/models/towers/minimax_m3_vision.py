"""MiniMax M3's tower."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.frames import NormedFramesEmbedding
from vramwise.models.towers.tower_design import Tower, encoder_sizes, layer_norm, pair


def minimax_m3(c: Config) -> Tower:
    """MiniMax M3: pairs of frames, a norm before the layers, rotary positions."""
    width, frames = c.hidden_size, c.size("temporal_patch_size")
    weight = ("embeddings.proj.weight", (width, c.size("num_channels"), frames, *pair(c, "patch_size")))
    return Tower(
        **encoder_sizes(c), before=(weight, *layer_norm("pre_layrnorm", width)), layers="layers", packed=True,
        embedding=NormedFramesEmbedding(), packed_turn="turned_by_thirds",
    )  # fmt: skip
