"""DeepSeek's first models: LLM 7B and 67B, which are Llama, and MoE 16B with shared experts beside routed ones.

Parameter names are those of the modeling file in deepseek-ai/deepseek-moe-16b-base, except that routed experts are one
3-D parameter a product, as in transformers' Mixtral, where the file has a linear layer for each expert. What autograd
keeps is derived from transformers' Llama.
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
    "vocab_size": 102_400, "hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 30,
    "num_attention_heads": 32, "moe_intermediate_size": 1407,
}  # fmt: skip


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS)
    bias = c.flag("attention_bias")
    s = Design(qkv_bias=bias, output_bias=bias)
    if not c.has("n_routed_experts"):
        return alike(c, s)
    e = experts(
        c, None, keys=("n_routed_experts",), routing="deepseek_v2", normalized=c.flag("norm_topk_prob")
    )  # fmt: skip
    shared = c.size("n_shared_experts", default=0, least=0) * e.intermediate_size
    first, period = c.size("first_k_dense_replace", default=0, least=0), c.size("moe_layer_freq", default=1)
    sparse = [i >= first and i % period == 0 for i in range(c.num_hidden_layers)]
    return mixture.model(c, s, Mixture(e, routing={"num_groups": 0}, shared=shared), sparse, full_layers(c))
