"""MiniCPM 1 and 2, dense or with experts: Llama whose embedding, sums with the stream and logits are scaled.

Parameter names are those of the modeling files in openbmb/MiniCPM-2B-sft-bf16 and MiniCPM-MoE-8x2B, except that experts
are one 3-D parameter a product, as in transformers' Mixtral, where the file has a linear layer for each expert. What
autograd keeps is derived from transformers' Llama.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder import alike
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.windows import full_layers

# Defaults of the remote configuration class.
_DEFAULTS = {
    "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, s = c.filled(_DEFAULTS), Design(scaled=True, scaled_logits=True, tied=True)
    if not c.size("num_experts", default=0, least=0):
        return alike(c, s)
    m = Mixture(experts(c, None, keys=("num_experts",), routing="qwen"), routing={"num_groups": 0})
    return mixture.model(c, s, m, [True] * c.num_hidden_layers, full_layers(c))
