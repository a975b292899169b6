"""The KV cache as mlx-lm keeps it (0.32.2 models/cache.py).

KVCache grows by whole steps of 256 tokens, RotatingKVCache holds `max_size` tokens and, while a prompt is read, the
chunk besides; QuantizedKVCache has packed integers with a scale and a bias a group. Growth copies a layer's keys and
values into new arrays; how many layers' old ones lie beside them then is up to the evaluation order, which no source
says.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil

from vramwise.models import LayerCache, Model
from vramwise.records import record
from vramwise.serving.common.kv_cache import engine_caches
from vramwise.units import round_up

STEP = 256  # KVCache.step, QuantizedKVCache.step, RotatingKVCache.step
STATE_BYTES = 4  # recurrent states are kept in fp32 at most


@record
class CacheSettings:
    """`kv_bits` None: as the model computes. `max_kv_size` rotates caches of models without caches of their own."""

    kv_bits: int | None
    kv_group_size: int
    quantized_kv_start: int
    max_kv_size: int | None
    chunk: int
    element_bytes: int


@record
class LayerBytes:
    """One layer's cache: at the end of a request, while the prompt is read, and of what a growing one copies.

    `beside_high`: what may lie beside what is held at the end, where that is more than what is copied: all of a cache
    of a short prompt that is about to be quantized, and its old arrays.
    """

    held: int
    prompt: int
    copied: int
    state_high: int = 0
    beside_high: int = 0


def pieces(tokens: int, chunk: int) -> Iterator[int]:
    """Tokens of each step over a prompt: chunks of all but the last, which is a step of its own."""
    left = tokens - 1
    while left > 0:
        yield min(chunk, left)
        left -= chunk
    yield 1


def _room(room: int, done: int, new: int) -> int:
    """Tokens that a KVCache has room for once `new` came after `done`: a room that ends within a step is cut there."""
    if done + new <= room:
        return room
    return (done if done % STEP and room else room) + round_up(new, STEP)


@lru_cache(maxsize=1024)
def growing(tokens: int, chunk: int) -> int:
    """The room of a KVCache after a prompt of so many tokens."""
    room = done = 0
    for new in pieces(tokens, chunk):
        room, done = _room(room, done, new), done + new
    return room


@lru_cache(maxsize=1024)
def rotating(tokens: int, size: int, chunk: int) -> tuple[int, int]:
    """Tokens in a RotatingKVCache of `size` after a prompt, and the most while it is read.

    A chunk keeps what its first token may see, size − 1 tokens before it; a single token grows it by a step, up to
    its size, and cuts it to that.
    """
    held = most = done = 0
    for new in pieces(tokens, chunk):
        if new > 1:
            held = new if not held else min(held, size - 1) + new
        else:
            held = min(held, size) if held > done or held >= size else held + min(STEP, size - done)
        most, done = max(most, held), done + new
    return held, most


@lru_cache(maxsize=1024)
def quantized(tokens: int, chunk: int, start: int) -> tuple[int, int]:
    """The room of a cache that is quantized from `start` tokens on, and the most room that it had before."""
    room = done = before = 0
    for new in pieces(tokens, chunk):
        room = _room(room, done, new)
        before = room if done < start else before
        done += new
    return room, before


def layers_of(model: Model, settings: CacheSettings, tokens: int) -> Iterator[LayerBytes]:
    """Every layer's cache for one request of `tokens`."""
    own = any(cache.window is not None or cache.kind == "recurrent" for cache in model.caches)
    for cache in engine_caches(model, model.caches):
        if cache.kind == "recurrent":
            elements = cache.conv_state_elements + cache.state_elements
            size = elements * settings.element_bytes
            yield LayerBytes(size, size, 0, elements * STATE_BYTES)
        elif cache.kind != "none":
            window = cache.window if own else settings.max_kv_size
            yield _layer(cache, settings, tokens, window)


def _layer(cache: LayerCache, settings: CacheSettings, tokens: int, window: int | None) -> LayerBytes:
    plain = _row(cache) * settings.element_bytes
    if window is not None:
        held, most = rotating(tokens, window, settings.chunk)
        return LayerBytes(held * plain, most * plain, held * plain)
    if settings.kv_bits is None or tokens < settings.quantized_kv_start:
        room = growing(tokens, settings.chunk)
        return LayerBytes(room * plain, room * plain, room * plain)
    room, before = quantized(tokens, settings.chunk, settings.quantized_kv_start)
    packed = room * _quantized_row(cache, settings)
    grown = growing(max(1, settings.quantized_kv_start - 1), settings.chunk)
    beside = max(0, 2 * grown * plain - packed)
    return LayerBytes(packed, max(packed, before * plain), before * plain, beside_high=beside)


def _row(cache: LayerCache) -> int:
    """Values of a token."""
    if cache.kind == "latent":
        return cache.latent_dim + cache.rope_dim + cache.index_dim
    return cache.num_key_value_heads * (cache.key_head_dim + cache.value_head_dim)


def _quantized_row(cache: LayerCache, settings: CacheSettings) -> int:
    """Bytes of a token: 32-bit words of packed values, and a scale and a bias a group, of keys and of values."""
    widths = (
        (cache.latent_dim, cache.rope_dim) if cache.kind == "latent" else (cache.key_head_dim, cache.value_head_dim)
    )
    heads = 1 if cache.kind == "latent" else cache.num_key_value_heads
    bits = settings.kv_bits or 0
    each = (
        4 * ceil(width * bits / 32) + 2 * (width // settings.kv_group_size) * settings.element_bytes for width in widths
    )
    return heads * sum(each)
