"""Quartz: Llama's layers with biases on query, key and value, and an MLP without a gate."""

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    return alike(c, Design(qkv_bias=True, mlp="plain"))
