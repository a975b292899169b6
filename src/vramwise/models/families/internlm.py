"""InternLM 1: Llama with biases.

Parameter names are those of the modeling file in internlm/internlm-7b; what autograd keeps is derived from
transformers' Llama.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 103_168, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    bias = c.flag("bias", True)
    return alike(c.filled(_DEFAULTS), Design(qkv_bias=bias, output_bias=bias))
