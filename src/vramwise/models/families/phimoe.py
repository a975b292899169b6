"""Phi 3.5 MoE: layer norms, biases, and two experts a token by sparse mixing; one window for all layers."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    bias = c.flag("attention_bias")
    s = Design(
        norm="layer", norm_style="torch", norm_bias=True, qkv_bias=bias, output_bias=bias,
        head_bias=c.flag("lm_head_bias"),
    )  # fmt: skip
    # The class samples two experts for every token, whatever num_experts_per_tok says.
    c = Config({**c.values, "num_experts_per_tok": 2, "moe_intermediate_size": None}, c.model_id)
    e = experts(c, count, keys=("num_local_experts",), routing="sparsemixer", router="mlp.router")
    m, layers = Mixture(e, jitters=2 if c.number("input_jitter_noise") > 0 else 0, balanced=True), c.num_hidden_layers
    return mixture.model(c, s, m, [True] * layers, [LayerKind(sliding_window(c))] * layers)
