"""CLIP's tower."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.operations.towers import ClipEmbedding
from vramwise.models.towers.tower_design import Tower, encoder_sizes, layer_norm, num_patches, own_size, patch_weights


def clip(c: Config) -> Tower:
    """CLIP: a class token, patches without bias, a norm before the layers."""
    width, embeddings = c.hidden_size, "embeddings.patch_embedding"
    return Tower(
        **encoder_sizes(c),
        before=(
            ("embeddings.class_embedding", (width,)), patch_weights(c, embeddings)[0],
            ("embeddings.position_embedding.weight", (num_patches(c) + 1, width)), *layer_norm("pre_layrnorm", width),
        ),
        after=layer_norm("post_layernorm", width), closing=LayerNorm(), embedding=ClipEmbedding(**own_size(c)),
    )  # fmt: skip
