"""How many heads a model has, as engines count them to split it."""

from __future__ import annotations

from vramwise.models import Model


def attention_heads(model: Model) -> int:
    """Query heads of the first layer that has attention; 0 where none has."""
    for block in model.layers():
        for op in block.ops:
            if op.kind.endswith("attention") and "num_heads" in op.settings:
                return int(op.settings["num_heads"])
    return 0


def key_value_heads(model: Model) -> int:
    """Key/value heads of the first layer with a cache of heads; 0 for latent attention and without attention."""
    kinds = ("full", "sliding", "chunked")
    return next((cache.num_key_value_heads for cache in model.caches if cache.kind in kinds), 0)
