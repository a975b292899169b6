"""Segment Anything's encoder, the tower of GOT-OCR 2 and of DeepSeek-VL's large images."""

from __future__ import annotations

from vramwise.models.config import Config
from vramwise.models.operations.sam import GridEmbedding, SamNeck
from vramwise.models.towers.tower_design import Tower, Weight, layer_norm, pair, with_bias


def _relative_positions(c: Config) -> tuple[tuple[Weight, ...], ...]:
    """Each layer's tables of relative positions: of a window, or of the whole image in layers that attend to it."""
    if not c.flag("use_rel_pos", True):
        return ()
    d, whole = c.hidden_size // c.num_attention_heads, c.items("global_attn_indexes") or []
    sides = (c.size("image_size") // c.size("patch_size"), c.size("window_size"))
    rows = (2 * sides[index not in whole] - 1 for index in range(c.num_hidden_layers))
    return tuple((("attn.rel_pos_h", (n, d)), ("attn.rel_pos_w", (n, d))) for n in rows)


def got_ocr2(c: Config) -> Tower:
    """GOT-OCR 2: attention in windows with relative positions, and a neck of convolutions."""
    width, out, side = c.hidden_size, c.size("output_channels"), c.size("image_size") // c.size("patch_size")
    bias = c.flag("qkv_bias", True)
    positions: tuple[Weight, ...] = (("pos_embed", (1, side, side, width)),) if c.flag("use_abs_pos", True) else ()
    patches = with_bias("patch_embed.projection", width, c.size("num_channels"), *pair(c, "patch_size"))
    neck = (
        ("neck.conv1.weight", (out, width, 1, 1)), *layer_norm("neck.layer_norm1", out),
        ("neck.conv2.weight", (out, out, 3, 3)), *layer_norm("neck.layer_norm2", out),
    )  # fmt: skip
    whole, window = c.items("global_attn_indexes") or [], c.size("window_size")
    return Tower(
        width, c.size("mlp_dim"), c.num_hidden_layers, c.num_attention_heads, c.text("hidden_act"),
        before=(*positions, *patches), after=neck, layers="layers", qkv=("attn.qkv",), output="attn.proj",
        biases=(bias, bias, bias, True), mlp=("mlp.lin1", "mlp.lin2"), of_layer=_relative_positions(c), rows=side,
        windows=tuple(0 if i in whole else window for i in range(c.num_hidden_layers)),
        embedding=GridEmbedding(image_size=c.size("image_size"), num_channels=c.size("num_channels")),
        closing=SamNeck(), eager_only=c.model_type == "got_ocr2_vision",
    )  # fmt: skip
