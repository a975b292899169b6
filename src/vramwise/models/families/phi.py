"""Phi 1 to 2: attention and a plain MLP side by side on one layer norm; Phi 3 and 4: Llama with fused products."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind, sliding_window


def phi(c: Config) -> Design:
    after, names = c.number("resid_pdrop"), ("q_layernorm", "k_layernorm")
    return Design(
        norm="layer", norm_style="torch", norm_bias=True, norms=("input_layernorm", None, None, None),
        final_norm="model.final_layernorm", qkv_bias=True, output_bias=True, mlp_bias=True, head_bias=True,
        qk_norm=HeadNorm("heads_first", "layer", names) if c.flag("qk_layernorm") else None, output="dense",
        mlp="plain", mlp_names=("fc1", "fc2"), rotary_share=0.5, joined=True,
        dropouts=(c.number("embd_pdrop"), after, after),
    )  # fmt: skip


def phi3(c: Config) -> Design:
    after = c.number("resid_pdrop")
    return Design(fused_qkv="joint", mlp="fused", joined=True, dropouts=(0.0, after, after))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    return alike(c, phi(c)) if c.model_type == "phi" else alike(c, phi3(c), LayerKind(sliding_window(c)))
