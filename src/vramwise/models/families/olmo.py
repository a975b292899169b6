"""OLMo, whose layer norms have no weights, and OLMo 2, which norms after each half and queries and keys whole."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.design import Design, HeadNorm


def olmo(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm="layer", norm_style="fp32", norm_weight=False, qkv_bias=bias, output_bias=bias,
        clip_qkv=c.has("clip_qkv"), rotary="half_fp32", rotary_table="fp32",
    )  # fmt: skip


def olmo2(c: Config) -> Design:
    bias = c.flag("attention_bias")
    return Design(
        norm_style="fp32-product", norms=(None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
        qkv_bias=bias, output_bias=bias, qk_norm=HeadNorm("projection", style="fp32-product"), rotary="half_fp32",
        rotary_table="fp32",
    )  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    return alike(c, olmo(c) if c.model_type == "olmo" else olmo2(c))
