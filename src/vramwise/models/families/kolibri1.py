"""Kolibri 1: norms around each half, experts in every layer; only sliding layers are turned, if there are any."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, sliding_window
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import every, typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    keys = ("num_experts", "num_local_experts")
    e = experts(c, count, keys=keys, routing="logit_first", normalized=c.flag("norm_topk_prob"))
    s = Design(
        norms=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
        qk_norm=HeadNorm("heads_first"),
    )  # fmt: skip
    kinds = typed_layers(c, every(c, 5), unturned="full_attention" if sliding_window(c) else "")
    shared = c.size("shared_expert_intermediate_size", default=512)
    return mixture.model(c, s, Mixture(e, shared=shared), [True] * c.num_hidden_layers, kinds)
