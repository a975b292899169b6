"""How many heads a model has, as engines count them to split it."""

from __future__ import annotations

from vramwise.memo import of_model
from vramwise.models import Model
from vramwise.models.operations.attention import Attention, HeadedAttention


@of_model
def attention_heads(model: Model) -> int:
    """Query heads of the first layer that has attention; 0 where none has."""
    for block in model.layers():
        for op in block.operations(HeadedAttention):
            return op.num_heads
    return 0


@of_model
def most_attention_heads(model: Model) -> int:
    """Most query heads of a layer, of attention that works scores out; 0 where none does."""
    return max((op.num_heads for block in model.layers() for op in block.operations(Attention)), default=0)


def key_value_heads(model: Model) -> int:
    """Key/value heads of the first layer with a cache of heads; 0 for latent attention and without attention."""
    kinds = ("full", "sliding", "chunked")
    return next((cache.num_key_value_heads for cache in model.caches if cache.kind in kinds), 0)


def shares_evenly(kv_heads: int, ranks: int) -> bool:
    """Whether every rank has as many key/value heads, or as many ranks have each of them."""
    return not kv_heads or ranks % kv_heads == 0 or kv_heads % ranks == 0
