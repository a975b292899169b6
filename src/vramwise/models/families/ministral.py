"""Ministral, whose layers all have the window, or none where the config has none, and Ministral 3."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window
from vramwise.models.layers.windows import typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    layers, window = c.num_hidden_layers, sliding_window(c)
    if c.model_type == "ministral3":
        return model(c, Design(scaled_queries="every"), [LayerKind(window)] * layers)
    return model(c, Design(), typed_layers(c, ["sliding_attention" if window else "full_attention"] * layers))
