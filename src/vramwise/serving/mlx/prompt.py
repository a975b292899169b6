"""A prompt's chunks, of which the fullest decides: its kernels in their order, over all layers.

Up to mlx-lm 0.26.4 chunks ran only while more than one of them was left, and the rest made logits of all its tokens;
since 0.27.1 chunks are of all tokens but the last (generate.py generate_step).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from vramwise.models import LayerCache, Model
from vramwise.records import record
from vramwise.serving.common.storage import Storage
from vramwise.serving.mlx.cache import CacheSettings, growing, layers_of, rotating
from vramwise.serving.mlx.in_flight import MOST_ACTIVE, Limits, most_held
from vramwise.serving.mlx.kernels import Chunk, Kernel, Lowered

ACTIVE = (MOST_ACTIVE // 2, MOST_ACTIVE, MOST_ACTIVE + 4)
"""Command buffers on their way: half of those that the encoder may be ahead, all, and some whose end is told late."""
SHORTER = 3


@record
class Prompts:
    """How prompts are read; `token_logits`: bytes of a token in logits, where a prompt's last piece makes all."""

    requests: int
    storage: Storage
    cache: CacheSettings
    token_logits: int = 0

    @property
    def logit_bytes(self) -> int:
        """Of a token of every request."""
        return self.requests * self.token_logits


@record
class Held:
    """Bytes in flight with each number of command buffers of `ACTIVE`."""

    low: int
    expected: int
    high: int


@lru_cache(maxsize=256)
def fullest_chunk(model: Model, prompts: Prompts, tokens: int, limits: Limits) -> Held:
    """Arrays in flight beside the whole cache of `tokens`: the fullest of the last two chunks, and of less to do.

    Where arrays fill command buffers, fewer tokens at once may leave more of them on their way: shorter prompts and
    fewer requests are looked at too, by halves.
    """
    low = expected = high = 0
    whole = _cache_bytes(model, prompts, tokens)
    shortest = min(tokens, prompts.cache.chunk) >> SHORTER
    for fewer in (replace(prompts, requests=requests) for requests in _halves(prompts.requests, 1)):
        for length in {*_halves(tokens, max(1, shortest)), min(tokens, prompts.cache.chunk)}:
            for start, new in _starts(max(2, length), prompts)[-2:]:
                free = whole - _cache_bytes(model, fewer, start + new)
                logits = new * fewer.logit_bytes if start + new >= length else 0
                held = [size + logits - free for size in _in_flight(model, fewer, start, new, limits)]
                low, expected, high = max(low, held[0]), max(expected, held[1]), max(high, held[2])
    return Held(low, expected, high)


@lru_cache(maxsize=4096)
def _in_flight(model: Model, prompts: Prompts, done: int, new: int, limits: Limits) -> tuple[int, ...]:
    return most_held(chunk_kernels(model, prompts, done, new), limits, ACTIVE)


def _halves(most: int, least: int) -> list[int]:
    return [most >> times for times in range(most.bit_length()) if most >> times >= least]


def _starts(tokens: int, prompts: Prompts) -> list[tuple[int, int]]:
    """Where each piece begins, and its tokens: all but the last token, or all where the last piece makes all logits."""
    until, chunk = tokens if prompts.token_logits else tokens - 1, prompts.cache.chunk
    return [(done, min(chunk, until - done)) for done in range(0, until, chunk)]


def _cache_bytes(model: Model, prompts: Prompts, tokens: int) -> int:
    return sum(layer.prompt for layer in layers_of(model, prompts.cache, tokens)) * prompts.requests


def chunk_kernels(model: Model, prompts: Prompts, done: int, new: int) -> Iterator[Kernel]:
    """The kernels of every layer while `new` tokens run behind `done`."""
    cache = prompts.cache
    own = any(one.window is not None or one.kind == "recurrent" for one in model.caches)
    given = None
    chunk = Chunk(new, prompts.requests, prompts.storage)
    for block in model.layers():
        held = next((one for one in block.caches if one.kind not in ("none", "recurrent")), None)
        window = None if held is None else held.window if own else cache.max_kv_size
        lowered = Lowered(block, chunk, *_rooms(held, window, cache, done, new), given)
        yield from lowered.kernels
        given = lowered.result


def _rooms(
    held: LayerCache | None, window: int | None, cache: CacheSettings, done: int, new: int
) -> tuple[int, int, int]:
    """Tokens whose keys a chunk reads, those that the cache holds then, and those that it held before."""
    if held is None:
        return 0, 0, 0
    if window is None:
        room = growing(done + new, cache.chunk)
        before = growing(done, cache.chunk) if done else 0
        return done + new, room, before if room > before else 0
    keys = rotating(done + new, window, cache.chunk)[1]
    return keys, keys, rotating(done, window, cache.chunk)[1] if done else 0
