"""EuroBERT: a Llama whose attention looks both ways, trained to fill in masked tokens."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.class_defaults import with_class_defaults
from vramwise.models.layers.decoder import model
from vramwise.models.layers.decoder_design import Design, LayerKind

HEAD = "masked-lm"


def loss(c: Config) -> str:
    """The class widens the logits."""
    return "fp32-lm"


def blocks(config: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = with_class_defaults(config)
    bias, mlp_bias = c.flag("attention_bias"), c.flag("mlp_bias")
    design = Design(both_ways=True, qkv_bias=bias, output_bias=bias, mlp_bias=mlp_bias, head_bias=mlp_bias)
    return model(c, design, [LayerKind()] * c.num_hidden_layers)
