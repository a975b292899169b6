"""Code World Model: Llama of which every fourth layer sees all tokens, the first among them."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    default = ["sliding_attention" if i % 4 else "full_attention" for i in range(c.num_hidden_layers)]
    return model(c, Design(mlp_bias=c.flag("mlp_bias")), typed_layers(c, default))
