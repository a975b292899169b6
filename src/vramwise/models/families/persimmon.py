"""Persimmon: queries, keys and values from one product by head, half of each head turned, a plain MLP."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    c = Config({**c.values, "num_key_value_heads": None, "head_dim": None}, c.model_id)  # it has no grouped queries
    names = ("q_layernorm", "k_layernorm")
    s = Design(
        norm="layer", norm_style="torch", norm_bias=True, final_norm="model.final_layernorm", fused_qkv="by_head",
        qkv_bias=True, output_bias=True, mlp_bias=True, mlp="plain", mlp_names=("dense_h_to_4h", "dense_4h_to_h"),
        qk_norm=HeadNorm("heads", "layer", names) if c.flag("qk_layernorm", True) else None, output="dense",
        rotary_share=0.5, joined=True, dropouts=(0.0, 0.0, c.number("hidden_dropout")),
    )  # fmt: skip
    return alike(c, s)
