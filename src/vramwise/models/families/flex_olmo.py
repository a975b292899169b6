"""FlexOlmo: OLMo 2 whose layers all have experts."""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.olmo import design
from vramwise.models.layers import mixture
from vramwise.models.layers.mixture import Mixture, experts
from vramwise.models.layers.mixture_defaults import completed
from vramwise.models.layers.windows import full_layers


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c, count = completed(c)
    keys, normalized = ("num_experts", "num_local_experts"), c.flag("norm_topk_prob")
    e = experts(c, count, keys=keys, routing="qwen", normalized=normalized)
    return mixture.model(c, design(c), Mixture(e, balanced=True), [True] * c.num_hidden_layers, full_layers(c))
