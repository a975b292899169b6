"""EXAONE 4: norms after each half and of heads; only sliding layers are turned, where there are any."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, HeadNorm, sliding_window
from vramwise.models.layers.windows import every, pattern_length, typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(c)
    default = every(c, pattern_length(c))
    kinds = typed_layers(c, default, unturned="full_attention" if sliding_window(c) else "")
    norms = (None, "post_attention_layernorm", None, "post_feedforward_layernorm")
    return model(c, Design(norms=norms, qk_norm=HeadNorm("heads_first")), kinds)
