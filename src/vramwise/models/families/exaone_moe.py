"""EXAONE with experts (K-EXAONE): DeepSeek V3's router; only sliding layers are turned, where there are any."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_design import Design, HeadNorm, sliding_window
from vramwise.models.layers.mixture import sparse_layers
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.sigmoid_routing import deepseek_style
from vramwise.models.layers.windows import every, pattern_length, typed_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    full, window = ["full_attention"] * c.num_hidden_layers, sliding_window(c)
    default = every(c, pattern_length(c)) if window else full
    kinds = typed_layers(c, default, unturned="full_attention" if window else "")
    dense = c.size("first_k_dense_replace", default=1, least=0)
    s = Design(qk_norm=HeadNorm("heads_first"))
    return mixture.model(c, s, deepseek_style(c, count), sparse_layers(c, dense), kinds)
