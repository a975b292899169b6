"""Granite with routed experts, beside which some have a shared MLP, and some windows and sinks."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.granite_layers import granite_mixture, windowed_layers
from vramwise.models.layers.mixture import model
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    shared = 0 if c.model_type == "granitemoe" else c.size("shared_intermediate_size", default=0, least=0)
    bias, slides = c.flag("attention_bias"), c.model_type == "granitemoe_swa"
    s = Design(qkv_bias=bias, output_bias=bias, scaled=True, scaled_logits=True, core="lse_sink" if slides else "")
    kinds = windowed_layers(c) if slides else full_layers(c)
    return model(c, s, granite_mixture(c, count, shared), [True] * c.num_hidden_layers, kinds)
