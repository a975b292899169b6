"""The KV cache as engines lay it out: bytes a token on one rank, pages, groups of layers, requests that fit.

Sources: vLLM v1/kv_cache_interface.py (pages), v1/core/kv_cache_utils.py (groups; kv_cache_planning.py in newer
versions), config/model.py get_num_kv_heads (copied heads).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from vramwise.models import LayerCache, Model
from vramwise.records import record
from vramwise.serving.common.convolutions import engine_conv_elements
from vramwise.serving.common.packed_heads import packed_head_bytes
from vramwise.serving.common.weights import ONE_STAGE, Stages
from vramwise.units import round_up

MLA_ROW_ALIGNMENT = 256  # vLLM 0.7 on CUDA pads each latent row to this
SCALE_BLOCK, SCALE_BYTES = 128, 4  # fp8 values that share an fp32 scale in caches of sparse latent attention


@record
class LayerSpec:
    """One layer's cache on one rank: bytes a token, or bytes of a state that does not grow."""

    kind: str
    token_bytes: int
    window: int | None = None
    state_bytes: int = 0


@record
class CacheDtypes:
    """Bytes an element of keys and values, of convolution states and of recurrent states."""

    cache_bytes: float
    conv_bytes: int = 2
    state_bytes: int = 2
    latent_row_alignment: int = 1
    packed: str = ""
    """The cache's dtype where its heads are packed."""
    latent_scales: bool = True
    """Whether 8-bit rows of sparse latent attention have scales, and a rotary part in 16 bit."""


def layer_specs(
    caches: Iterable[LayerCache], tensor_parallel: int, dtypes: CacheDtypes, *, windows: bool = True
) -> tuple[LayerSpec, ...]:
    """Every layer's cache on one rank of tensor parallelism.

    Heads a rank = max(1, heads // ranks); a latent cache is whole on every rank; states are cut like heads.
    Without `windows`, sliding and chunked layers are charged as full ones.
    """
    return tuple(_spec(cache, tensor_parallel, dtypes, windows) for cache in caches if cache.kind != "none")


@lru_cache(maxsize=1024)
def model_specs(
    model: Model,
    tensor_parallel: int,
    dtypes: CacheDtypes,
    windows: bool = True,
    stages: Stages = ONE_STAGE,
    stage: int = 0,
) -> tuple[LayerSpec, ...]:
    """`layer_specs` of all layers of a pipeline stage, kept for the next scenario."""
    caches: Iterable[LayerCache] = model.caches
    if stages.count > 1:
        start, stop = stages.spans(model.num_layers)[stage]
        caches = (cache for block in list(model.layers())[start:stop] for cache in block.caches)
    return layer_specs(engine_caches(model, caches), tensor_parallel, dtypes, windows=windows)


def engine_caches(model: Model, caches: Iterable[LayerCache], drafted: int = 0) -> tuple[LayerCache, ...]:
    """Layers' caches with convolution states as engines keep them, with room for `drafted` tokens."""
    return tuple(
        replace(cache, conv_state_elements=engine_conv_elements(model, cache.conv_state_elements, drafted))
        if cache.kind == "recurrent"
        else cache
        for cache in caches
    )


@lru_cache(maxsize=1024)
def sequence_bytes(specs: tuple[LayerSpec, ...], window_share: float = 1.0) -> tuple[int, int]:
    """Bytes of one token over all layers, and of one sequence's states; windowed layers beside full ones hold
    `window_share` of the tokens."""
    mixed = len(set(specs)) > 1
    token = sum(spec.token_bytes * (window_share if mixed and spec.window is not None else 1) for spec in specs)
    return round(token), sum(spec.state_bytes for spec in specs)


def _spec(cache: LayerCache, tensor_parallel: int, dtypes: CacheDtypes, windows: bool) -> LayerSpec:
    if cache.kind == "recurrent":
        conv = -(-cache.conv_state_elements // tensor_parallel) * dtypes.conv_bytes
        return LayerSpec(
            "recurrent", 0, state_bytes=conv + -(-cache.state_elements // tensor_parallel) * dtypes.state_bytes
        )
    if cache.kind == "latent":
        return LayerSpec("latent", round_up(_latent_row(cache, dtypes), dtypes.latent_row_alignment))
    heads = max(1, cache.num_key_value_heads // tensor_parallel)
    packed = packed_head_bytes(dtypes.packed, cache.key_head_dim, cache.value_head_dim)
    token = (
        heads * packed
        if packed is not None
        else ceil(heads * (cache.key_head_dim + cache.value_head_dim) * dtypes.cache_bytes)
    )
    if cache.window is None or not windows:
        return LayerSpec("full", token)
    return LayerSpec(cache.kind, token, cache.window)


def _latent_row(cache: LayerCache, dtypes: CacheDtypes) -> int:
    """Bytes of a token's latent vector, and of its indexer's key where attention is sparse.

    The indexer's key is fp8 with one scale for 128 values, whatever the cache is, one for each group of tokens where it
    picks groups. Beside an indexer an fp8 latent has such scales too, and its rotary part stays in 16 bit (656 bytes
    for 512 + 64), where the kernel wants them.
    Sources: vLLM 0.11.2 model_executor/models/deepseek_v2.py, config.py (fp8_ds_mla); SGLang 0.5.23
    mem_cache/kv_cache_configurator.py calculate_mla_kv_cache_dim, model_executor/pool_configurator.py.
    """
    if not cache.index_dim:
        return ceil((cache.latent_dim + cache.rope_dim) * dtypes.cache_bytes)
    index = -(-_scaled(cache.index_dim) // max(1, cache.index_pool))
    if dtypes.cache_bytes == 1 and dtypes.latent_scales:
        return _scaled(cache.latent_dim) + cache.rope_dim * dtypes.conv_bytes + index
    return ceil((cache.latent_dim + cache.rope_dim) * dtypes.cache_bytes) + index


def _scaled(values: int) -> int:
    return values + values // SCALE_BLOCK * SCALE_BYTES


@record
class LayerGroup:
    """Layers of one kind that share page tables: how many groups of `group_size` layers they make.

    `own_bytes`: a page of each of its layers, together, where the engine weighs groups with them.
    """

    spec: LayerSpec
    num_groups: int
    block_size: int
    state_pages: int = 1
    own_bytes: int = 0

    def pages_per_request(self, tokens: int, batched_tokens: int, dcp: int = 1) -> int:
        """Pages of one group that a request of `tokens` may hold."""
        spec = self.spec
        if spec.kind == "recurrent":
            return self.state_pages
        if spec.kind == "sliding" and spec.window is not None:
            return -(-min(spec.window - 1 + batched_tokens, tokens) // self.block_size) + 1
        if spec.kind == "chunked" and spec.window is not None:
            return -(-min(spec.window + batched_tokens, tokens) // self.block_size)
        own_tokens = -(-tokens // dcp)
        return -(-own_tokens // self.block_size)


@record
class PoolPlan:
    """One pool of pages from which every group of layers draws.

    `page_bytes` is the page of one layer, `group_size` the layers that a block of the pool serves, so a block takes
    page_bytes · group_size bytes.
    """

    page_bytes: int
    group_size: int
    groups: tuple[LayerGroup, ...]
    decode_context_parallel: int = 1

    @property
    def block_bytes(self) -> int:
        """Bytes of a block of the pool: page_bytes · group_size."""
        return self.page_bytes * self.group_size

    @property
    def num_groups(self) -> int:
        """Groups of layers that draw from the pool, of all kinds."""
        return sum(group.num_groups for group in self.groups)

    @property
    def smallest_block(self) -> int:
        """Tokens of the shortest page of a layer that keeps tokens; 1 without such a layer."""
        sizes = [group.block_size for group in self.groups if group.spec.kind != "recurrent"]
        return min(sizes, default=1)

    def num_blocks(self, available_bytes: int) -> int:
        """Blocks that fit into so many bytes: available // page // group_size, not below 0."""
        return max(0, available_bytes // self.page_bytes // self.group_size) if self.block_bytes else 0

    def blocks_per_request(self, tokens: int, batched_tokens: int) -> int:
        """Blocks of the pool that one request of `tokens` may hold: Σ over groups."""
        dcp = self.decode_context_parallel
        return sum(g.num_groups * g.pages_per_request(tokens, batched_tokens, dcp) for g in self.groups)

    def max_concurrency(self, num_blocks: int, tokens: int, batched_tokens: int) -> float:
        """Requests of `tokens` that the pool holds at once."""
        blocks = self.blocks_per_request(tokens, batched_tokens)
        return num_blocks / blocks if blocks else 0.0

    def printed_concurrency(self, num_blocks: int, tokens: int, batched_tokens: int) -> float:
        """The same as the engine prints it: pages of groups of several sizes weighed, where it does so."""
        first, *_ = self.groups
        if not first.own_bytes:
            return self.max_concurrency(num_blocks, tokens, batched_tokens)
        dcp = self.decode_context_parallel
        held = sum(group.own_bytes * group.pages_per_request(tokens, batched_tokens, dcp) for group in self.groups)
        return num_blocks / -(-held // first.own_bytes)

    def longest_request(self, num_blocks: int, batched_tokens: int, limit: int) -> int:
        """Tokens of the longest request that the pool holds, 0 when none."""
        low, high = 0, limit
        if self.blocks_per_request(high, batched_tokens) <= num_blocks:
            return high
        while high - low > 1:
            middle = (low + high) // 2
            if self.blocks_per_request(middle, batched_tokens) <= num_blocks:
                low = middle
            else:
                high = middle
        return low


def plan_pool(
    specs: Sequence[LayerSpec], block_size: int, *, hybrid: bool = True, largest_group_ratio: float = 1.0,
    decode_context_parallel: int = 1, state_pages: int = 1, sums_full: bool = False,
) -> PoolPlan:  # fmt: skip
    """Lay layers out in one pool.

    Layers of one kind make one group of all, and so do with `sums_full` layers that all keep every token, whatever they
    keep of it: a block holds a page of each. Different kinds are put in groups of equal size g, the least count of
    a kind, or the largest where that is below `largest_group_ratio` times the least; the last group of a kind is
    padded. Pages are made equal by raising the block size of the layers with small pages; a recurrent state is
    padded to the attention page, whose block is raised until it covers the state; a request holds `state_pages` of
    them. `hybrid` False charges all as one.
    """
    counts: dict[LayerSpec, int] = {}
    for spec in specs:
        counts[spec] = counts.get(spec, 0) + 1
    if not counts:
        return PoolPlan(0, 0, ())
    if sums_full and len(counts) > 1 and all(spec.kind in ("full", "latent") for spec in counts):
        token = sum(spec.token_bytes * n for spec, n in counts.items())
        group = LayerGroup(LayerSpec("full", token), 1, block_size, state_pages)
        return PoolPlan(token * block_size, 1, (group,), decode_context_parallel)
    blocks = _block_sizes(counts, block_size)
    pages = [spec.token_bytes * blocks[spec] if spec.token_bytes else spec.state_bytes for spec in counts]
    page = max(pages)
    if len(counts) == 1 or not hybrid:
        total = sum(counts.values())
        groups = tuple(LayerGroup(spec, 1 if i == 0 else 0, blocks[spec], state_pages) for i, spec in enumerate(counts))
        return PoolPlan(page, total, groups, decode_context_parallel)
    least, most = min(counts.values()), max(counts.values())
    size = most if most < largest_group_ratio * least else least
    return PoolPlan(
        page,
        size,
        tuple(LayerGroup(spec, -(-n // size), blocks[spec], state_pages) for spec, n in counts.items()),
        decode_context_parallel,
    )


def _block_sizes(counts: dict[LayerSpec, int], block_size: int) -> dict[LayerSpec, int]:
    """Tokens in a block of each kind, so that all pages are as large as the largest."""
    attention = [spec for spec in counts if spec.token_bytes]
    state = max((spec.state_bytes for spec in counts), default=0)
    if not attention:
        return dict.fromkeys(counts, 1)
    if state:
        narrowest = min(spec.token_bytes for spec in attention)
        block_size = max(block_size, round_up(-(-state // narrowest), block_size))
    widest = max(spec.token_bytes for spec in attention)
    return {spec: block_size * (widest // spec.token_bytes) if spec.token_bytes else block_size for spec in counts}
