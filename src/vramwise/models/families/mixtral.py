"""Mixtral: Llama whose layers all have routed experts, with one window for all."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.decoder_attention import grouped_attention
from vramwise.models.layers.decoder_design import Design, LayerKind, sliding_window
from vramwise.models.layers.mixture import Mixture, experts

_DEFAULTS = {"num_experts_per_tok": 2, "intermediate_size": 14_336}
"""Defaults of `MixtralConfig` (transformers 5.23)."""


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c, layers = c.filled(_DEFAULTS), c.num_hidden_layers
    # The classes take both names, and write the one that they prefer.
    e = experts(c, 8, keys=("num_experts", "num_local_experts"), routing="mixtral")
    m = Mixture(e, balanced=True, jitters=int(c.number("router_jitter_noise") > 0))
    kind = LayerKind(attention=partial(grouped_attention, c=c, window=sliding_window(c)))
    return mixture.model(c, Design(), m, [True] * layers, [kind] * layers)
