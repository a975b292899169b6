"""What transformers' `DynamicCache` and its kin hold: bytes of storages, as the allocator sees them.

Source: transformers 5.23 cache_utils.py; tests/models/test_caches_match_transformers.py holds it against the classes.
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.models import LayerCache, Model
from vramwise.models.blocks import Block
from vramwise.models.operations.attention import AnyAttention
from vramwise.records import record

FP32_BYTES, ID_BYTES = 4, 8


@record
class CacheShape:
    """Equal layers together: elements a token (`fp32_per_token` of them in fp32) and a sequence, number of layers.

    `token_ids` and `sequence_ids` are whole numbers of 8 bytes.
    """

    elements_per_token: int
    fp32_per_token: int
    window: int | None
    of_source: bool
    conv_elements: int
    state_elements: int
    fp32_state: bool
    token_ids: int
    sequence_ids: int
    num_layers: int

    def bytes(
        self, tokens: int, source: int, cache_bytes: int, model_bytes: int, *, cut_to_window: bool = True
    ) -> int:  # fmt: skip
        """Bytes of one sequence in all these layers.

        bytes = layers · (kept tokens · elements a token · `cache_bytes` + past inputs · `model_bytes` + sums · 4
        + ids · 8).
        `tokens` are the decoder's, `source` the encoder's. Right after the prefill a window's keys are a view of the
        whole prompt's, which stays whole until the first new token makes a copy (`cut_to_window` False); positions are
        one row of numbers for the whole batch until then, which is not counted.
        """
        kept = source if self.of_source else tokens
        if self.window is not None and cut_to_window:
            kept = min(kept, self.window)
        state = self.state_elements * (FP32_BYTES if self.fp32_state else model_bytes)
        wide = self.fp32_per_token * max(0, FP32_BYTES - cache_bytes)
        ids = ID_BYTES * (self.sequence_ids + (kept * self.token_ids if cut_to_window else 0))
        row = kept * (self.elements_per_token * cache_bytes + wide) + self.conv_elements * model_bytes + state
        return self.num_layers * (row + ids)


@lru_cache(maxsize=512)
def dynamic_cache(model: Model, *, whole_heads: bool = False) -> tuple[CacheShape, ...]:
    """The caches of all layers.

    With `whole_heads`, latent attention keeps keys and values of every head, as transformers before 5 does.
    """
    kinds: dict[tuple[int, int, int | None, bool, int, int, bool, int, int], int] = {}
    for block in model.blocks:
        for cache in block.caches:
            per_token = _elements_per_token(cache, block, whole_heads) * cache.copies
            states = cache.conv_state_elements, cache.state_elements, not cache.model_dtype_state
            wide = cache.index_dim if cache.fp32_index else 0
            ids = cache.token_ids, cache.sequence_ids
            key = (per_token, wide, cache.window, cache.kind == "cross", *states, *ids)
            kinds[key] = kinds.get(key, 0) + 1
    return tuple(CacheShape(*key, count) for key, count in kinds.items())


def _elements_per_token(cache: LayerCache, block: Block, whole_heads: bool) -> int:
    if cache.kind != "latent" or not whole_heads:
        return cache.elements_per_token
    attention = next(block.operations(AnyAttention))
    _, k, v = attention.inputs[:3]
    return attention.num_heads * (k.width + v.width)


def source_tokens(model: Model, prompt: int) -> int:
    """Length of the encoder's output: the prompt, or a sound's fixed length; 0 for text without an encoder.

    Layers that look at images keep nothing of a prompt of text alone.
    """
    if model.head != "seq2seq-lm":
        return 0
    if model.config.has("num_mel_bins"):
        return model.config.size("max_source_positions", default=prompt)
    return prompt
