"""Muse Glimmer's tower of patches of two frames through one matrix, and the projector after it."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.norms import RmsNorm
from vramwise.models.towers.tower_design import Tower, layer_norm

DEFAULTS: dict[str, object] = {
    "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 50, "num_attention_heads": 16,
    "patch_size": 14, "patch_temporal": 2, "pos_emb_height": 32, "pos_emb_width": 32, "hidden_act": "gelu",
}  # fmt: skip
"""Defaults of MuseGlimmerVisionConfig (transformers 5.23)."""


def tower(v: Config) -> Tower:
    """Patches of two frames through one matrix, learned and rotary positions."""
    width, rows = v.hidden_size, v.size("pos_emb_height") * v.size("pos_emb_width")
    patch = 3 * v.size("patch_temporal") * v.size("patch_size") ** 2
    return Tower(
        width, v.intermediate_size, v.num_hidden_layers, v.num_attention_heads, v.text("hidden_act"), layers="layers",
        before=(
            ("patch_embedder.patch_embedding.weight", (width, patch)),
            ("patch_embedder.position_embedding_table.weight", (rows, width)), *layer_norm("ln_pre", width),
        ),
        after=layer_norm("ln_post", width), norms=("norm1", "norm2"),
        qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"), output="attn.proj",
    )  # fmt: skip


def projector(c: Config, width: int) -> Block:
    """Neighbouring patches joined, three matrices, a norm without weights."""
    b = BlockBuilder("model", part="projector", modality="image")
    inner, function = c.size("projector_hidden_size", default=4096), c.text("projector_hidden_act", "gelu")
    x = b.input("image", c.size("out_hidden_size", default=6144))
    for name in ("fc1", "fc2"):
        x = b.activation(b.linear(x, f"vision_adapter.{name}", inner), function, "vision_adapter.act")
    x = b.linear(x, "vision_projection", width)
    return b.build(image=b.unary(RmsNorm(style="gemma4"), x, "perception_emb_norm"))
