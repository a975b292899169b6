"""GLM 4: gate and up in one product, half of each head turned; GLM 4-0414 norms after each half as well."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design

_NORMS = {"glm4": ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")}


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    s = Design(
        norms=_NORMS.get(c.model_type, Design().norms), qkv_bias=c.flag("attention_bias", True), mlp="fused",
        rotary="pairs", rotary_share=0.5, joined=True,
    )  # fmt: skip
    return alike(c, s)
