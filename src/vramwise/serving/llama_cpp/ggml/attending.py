"""The cache that attention writes and reads, and what mixes its values (llama-kv-cache.cpp, llama-graph.cpp)."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.serving.llama_cpp.ggml.build import Build
from vramwise.serving.llama_cpp.ggml.tensors import (
    F16,
    HOST,
    Tensor,
    contiguous,
    matmul,
    permute,
    reshape,
    set_rows,
    shape,
    stored,
    view,
)
from vramwise.units import round_up

LEAST_TURN = 64


def store(b: Build, x: Tensor, heads: int, windowed: bool, part: str) -> Tensor:
    """Writes a batch into a layer's cache and shows its cells (llama_kv_cache cpy_k, cpy_v, get_k, get_v)."""
    batch = b.batch
    cells = batch.window_cells if windowed else batch.cells
    width, tokens, item = x.ne[0], x.ne[2], F16
    row = width * heads
    cache = stored(shape(row, cells, batch.streams), item, b.cache_device, weight=False)
    places = b.cell_indices(windowed, part)
    if part == "v" and not batch.flash:
        joined = x.nb[2] == row * x.item
        flat = reshape(x, row, tokens) if joined else Tensor("CONT", shape(row, tokens), sources=(x,))
        target = reshape(cache, 1, row * cells * batch.streams)
        b.graph.expand(set_rows(target, reshape(flat, 1, row * tokens), places), True)
        strides = (item, item * cells * width, item * cells, item * cells * row)
        return view(cache, (cells, heads, width, batch.streams), strides)
    target = reshape(cache, row, cells * batch.streams) if batch.streams > 1 else cache
    flat = view(x, shape(row, tokens), (x.nb[0], x.nb[2], x.nb[2] * tokens, x.nb[2] * tokens))
    b.graph.expand(set_rows(target, flat, places), True)
    return view(cache, (width, heads, cells, batch.streams), (item, item * width, item * row, item * row * cells))


def _copies(b: Build, k: Tensor, v: Tensor, size: int) -> int:
    """Keys and values of all cells in 16 bit behind the result; values that are part of the keys have none."""
    apart = v.root is not k.root
    copied = [x for x, copies in ((k, b.batch.copied_keys), (v, b.batch.copied_values and apart)) if copies]
    end = size
    for x in copied:
        end = round_up(end, 128) + F16 * x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3]
    return end - size


def turned(b: Build, x: Tensor, width: int) -> Tensor:
    """Rows times a Hadamard matrix (llama_mul_mat_hadamard)."""
    rows = x.ne[0] * x.ne[1] * x.ne[2] * x.ne[3] // width
    gaps = x.nb != contiguous(x.ne, x.item)
    flat = Tensor("CONT", shape(width, rows), sources=(x,)) if gaps else reshape(x, width, rows)
    return reshape(matmul(b.turn(width), flat), *x.ne)


def key_turn(width: int) -> int:
    """The largest power of two from 64 on that divides a head."""
    turn = LEAST_TURN
    while width % (2 * turn) == 0:
        turn *= 2
    return turn


def attend(
    b: Build, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, sinks: Sequence[Tensor] = (), unpack: Tensor | None = None
) -> Tensor:
    """Queries by cells, in one operation with flash attention; `unpack` turns latent values into those of each head."""
    streams = b.batch.streams
    tokens = q.ne[2] // streams
    q = view(q, (q.ne[0], q.ne[1], tokens, streams), (q.nb[0], q.nb[1], q.nb[2], q.nb[2] * tokens))
    q, k, v = (permute(x, 0, 2, 1, 3) for x in (q, k, v))
    for one, kind in ((k, b.batch.key_type), (v, b.batch.value_type)):
        one.bytes = one.bytes // F16 * kind.block_bytes // kind.block_size  # what a copy takes of a cache elsewhere
    heads = q.ne[2]
    if b.batch.flash:
        mixed = Tensor("FLASH_ATTN_EXT", (v.ne[0], heads, tokens, streams), sources=(q, k, v, mask, *sinks))
        mixed.bytes_behind = _copies(b, k, v, mixed.bytes)
        if unpack is not None:
            mixed = permute(matmul(unpack, permute(mixed, 0, 2, 1, 3)), 0, 2, 1, 3)
            mixed = Tensor("CONT", mixed.ne, sources=(mixed,))
        found = reshape(mixed, mixed.ne[0] * heads, tokens * streams)
    else:
        scores = Tensor("SOFT_MAX", (k.ne[1], tokens, heads, streams), sources=(matmul(k, q), mask, *sinks))
        if unpack is not None:
            v = Tensor("CONT", (v.ne[1], v.ne[0], *v.ne[2:]), sources=(permute(v, 1, 0, 2, 3),))
        mixed = matmul(v, scores)
        if unpack is not None:
            mixed = matmul(unpack, mixed)
        mixed = permute(mixed, 0, 2, 1, 3)
        found = Tensor("CONT", shape(mixed.ne[0] * heads, tokens * streams), sources=(mixed,))
        if not b.batch.cache_on_devices:
            found.told = HOST
    b.graph.expand(found)
    return found
