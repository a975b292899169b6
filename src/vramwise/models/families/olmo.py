"""OLMo, whose layer norms have no weights; OLMo 2, which norms after each half; OLMo 3, which has windows too."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.windows import every, full_layers, typed_layers


def design(c: Config) -> Design:
    """Both switches of biases are one; from OLMo 2 on norms are root mean squares."""
    bias = c.flag("attention_bias")
    if c.model_type == "olmo":
        return Design(
            norm="layer", norm_style="fp32", norm_weight=False, qkv_bias=bias, output_bias=bias,
            clip_qkv=c.has("clip_qkv"), rotary="half_fp32", rotary_table="fp32",
        )  # fmt: skip
    return Design(
        norm_style="fp32-product", norms=(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
        qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection", style="fp32-product"), rotary="half_fp32",
        rotary_table="fp32",
    )  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head; OLMo 3 has a rotary table for each kind of layer."""
    c = with_class_defaults(c)
    if c.model_type != "olmo3":
        return model(c, design(c), full_layers(c))
    kinds = [replace(kind, table=f"fp32 {kind.table}") for kind in typed_layers(c, every(c, 4), tables=True)]
    return model(c, design(c), kinds)
