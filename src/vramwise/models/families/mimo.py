"""MiMo 7B: Llama with biases of queries, keys and values.

Parameter names are those of the modeling file in XiaomiMiMo/MiMo-7B-Base; what autograd keeps is derived from
transformers' Llama. Not counted: the layers for multi-token prediction.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 151_936, "hidden_size": 4096, "intermediate_size": 22_016, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    return alike(c.filled(_DEFAULTS), Design(qkv_bias=True))
