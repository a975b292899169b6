"""Granite: Llama whose embedding, sums with the stream and logits are scaled; with windows, it has sinks too."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.granite_layers import windowed_layers
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    bias, slides = c.flag("attention_bias"), c.model_type == "granite_swa"
    s = Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=c.flag("mlp_bias"), core="lse_sink" if slides else "", scaled=True,
        scaled_logits=True, tied=slides,
    )  # fmt: skip
    return model(c, s, windowed_layers(c) if slides else full_layers(c))
