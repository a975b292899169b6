"""Aria's language model: Llama whose layers all have experts, the best logits first, beside shared ones."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    chosen, bias = c.size("moe_topk", default=2), c.flag("attention_bias")
    c = Config({**c.values, "num_experts_per_tok": chosen, "hidden_act": "silu"}, c.model_id)
    e = experts(c, count, keys=("moe_num_experts",), routing="best_first", router="mlp.router", transposed=True)
    shared = e.intermediate_size * c.size("moe_num_shared_experts", default=2)
    m = Mixture(e, routing={"widened": False, "function": "softmax"}, shared=shared, bias=c.flag("mlp_bias"))
    s = Design(qkv_bias=bias, output_bias=bias)
    return mixture.model(c, s, m, [True] * c.num_hidden_layers, full_layers(c))
