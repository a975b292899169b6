"""ERNIE 4.5 with experts: rotary pairs in fp32, experts in every so many layers beside shared ones."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import full_layers


def sparse_layers(c: Config) -> list[bool]:
    """Every so many layers between the first and the last that the config names."""
    layers, period = c.num_hidden_layers, c.size("moe_layer_interval", default=1)
    first = c.size("moe_layer_start_index", default=1, least=0)
    last = c.size("moe_layer_end_index", default=-1, least=-1)
    last = layers - 1 if last == -1 else last
    return [(i + 1) % period == 0 and first <= i <= last for i in range(layers)]


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    chosen, bias = c.size("moe_k", "num_experts_per_tok", default=6), c.flag("use_bias")
    c = Config({**c.values, "num_experts_per_tok": chosen, "attention_dropout": 0.0}, c.model_id)
    e = experts(c, count, keys=("moe_num_experts", "num_experts"), routing="ernie4_5_moe")
    m = Mixture(
        e, correction=("mlp.gate.moe_statics", "e_score_correction_bias", (1, e.num_experts)), bias=bias,
        shared=c.size("moe_num_shared_experts", default=2, least=0) * e.intermediate_size, balanced=True,
    )  # fmt: skip
    s = Design(
        qkv_bias=bias, output_bias=bias, mlp_bias=bias, head_bias=bias, rotary="pairs_widened", rotary_table="fp32",
        tied=True,
    )  # fmt: skip
    return mixture.model(c, s, m, sparse_layers(c), full_layers(c))
