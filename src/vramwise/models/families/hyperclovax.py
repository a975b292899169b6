"""HyperCLOVA X: Granite's scales, and norms after each half where the config has them."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, after = c.flag("attention_bias"), c.flag("use_post_norm", True)
    names = ("input_layernorm", "post_norm1", "post_attention_layernorm", "post_norm2")
    s = Design(
        norms=names if after else Design().norms, qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"),
        scaled=True, scaled_logits=True,
    )  # fmt: skip
    return alike(c, s)
