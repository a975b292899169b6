"""MiniMax M2: queries and keys normed whole, a part of each head turned, experts by corrected sigmoid scores."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import corrected
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    m = corrected(c, count, in_place=True, epsilon=False, scaled=False)
    share = c.size("rotary_dim", default=c.head_dim) / c.head_dim
    s = Design(qk_norm=HeadNorm("projection"), rotary_share=share, joined=True)
    m = replace(m, jitters=int(c.number("router_jitter_noise") > 0), balanced=True)
    return mixture.model(c, s, m, sparse_layers(c, 0), full_layers(c))
