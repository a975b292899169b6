"""ERNIE 4.5 VL's tower, and the resampler that joins squares of its patches and pairs of its frames."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.operations.experts_by_modality import FramesTwice, RowsOfPixels
from vramwise.models.operations.norms import LayerNorm
from vramwise.models.towers.projector_pieces import joined, norm, two_products
from vramwise.models.towers.tower_design import Tower, layer_norm

# Defaults of Ernie4_5_VLMoeVisionConfig (transformers 5.23).
VISION_DEFAULTS: dict[str, object] = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 5120, "num_heads": 16, "in_channels": 3, "patch_size": 14,
    "spatial_merge_size": 2, "temporal_merge_size": 2, "hidden_act": "quick_gelu",
}  # fmt: skip


def tower(vision: Config) -> Tower:
    """Patches as rows of pixels, packed attention."""
    width, patch = vision.hidden_size, vision.size("patch_size")
    return Tower(
        width, vision.intermediate_size, vision.size("depth"), vision.size("num_heads"), vision.text("hidden_act"),
        before=(("patch_embed.proj.weight", (width, vision.size("in_channels") * patch * patch)),),
        embedding=RowsOfPixels(), packed=True, after=layer_norm("ln", width), closing=LayerNorm(), layers="blocks",
        norms=("norm1", "norm2"), qkv=("attn.qkv",), output="attn.proj",
    )  # fmt: skip


def resampler(tower: Config, width: int) -> Block:
    """Squares of patches and pairs of frames joined, each behind two products and a norm."""
    b = BlockBuilder("model.resampler_model", part="projector", modality="image")
    x = joined(b, b.input("image", tower.hidden_size), tower.size("spatial_merge_size") ** 2)
    wide = x.width
    for name, tokens in (("spatial_linear", 1), ("temporal_linear", tower.size("temporal_merge_size"))):
        x = b.unary(FramesTwice(), x, width=x.width * tokens) if tokens > 1 else x
        x = two_products(b, x, (f"{name}.fc1", f"{name}.fc2"), (wide, wide))
        x = norm(b, x, f"{name}.ln")
    x = b.linear(x, "mlp", width, bias=True)
    return b.build(image=b.rms_norm(x, "after_norm", part="projector"))
