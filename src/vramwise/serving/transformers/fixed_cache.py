"""transformers' caches that do not grow by concatenation: static ones, and quantized ones with a full-precision rest.

Source: transformers 5.23 cache_utils.py StaticLayer, StaticSlidingWindowLayer, QuantizedLayer (defaults of
QuantizedCacheConfig: groups of 64, 128 residual tokens), generation/utils.py (a static cache is as long as the answer
may get).
"""

from __future__ import annotations

from vramwise.serving.transformers.dynamic_cache import CacheShape

GROUP, RESIDUAL_TOKENS = 64, 128
SCALES_OF_A_GROUP = 2  # scale and shift, in the model's dtype


def static_bytes(shape: CacheShape, longest: int, source: int, model_bytes: int) -> int:
    """Bytes of one sequence: every layer has room for `longest` tokens, a sliding one for its window at most."""
    return shape.bytes(longest, source, model_bytes, model_bytes)


def quantized_bytes(shape: CacheShape, prompt: int, new: int, source: int, bits: int, model_bytes: int) -> int:
    """Bytes of one sequence after the prompt and `new` tokens, of which the first is not cached yet.

    tokens · elements · (bits / 8 + 2 · dtype / 64), and the tokens since the last multiple of 128 in full. Windows are
    not cut: QuantizedCache keeps every layer whole.
    """
    residual = (new - 1) % RESIDUAL_TOKENS
    packed = prompt + new - 1 - residual
    elements = shape.elements_per_token * packed
    scales = elements // GROUP * SCALES_OF_A_GROUP * model_bytes
    per_layer = -(-elements * bits // 8) + scales + residual * shape.elements_per_token * model_bytes
    states = shape.bytes(0, source, model_bytes, model_bytes)
    return shape.num_layers * per_layer + states
