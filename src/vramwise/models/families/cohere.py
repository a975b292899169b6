"""Command R and R+: attention and MLP side by side on one layer norm, logits times a number."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.design import Design, HeadNorm


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias = c.flag("attention_bias")
    s = Design(
        norm="layer", norm_style="python", norms=("input_layernorm", None, None, None), qkv_bias=bias, output_bias=bias,
        qk_norm=HeadNorm("heads", "python") if c.flag("use_qk_norm") else None, rotary="pairs_fp32",
        scaled_logits=True, tied=True,
    )  # fmt: skip
    return alike(c, s)
