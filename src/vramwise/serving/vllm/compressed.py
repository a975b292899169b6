"""Pages of DeepSeek V4's caches: compressed keys, the indexer's, a window of whole ones, and the compressors' states.

Sources: vLLM 0.22.0 and 0.33.0 models/deepseek_v4/attention.py, compressor.py, v1/attention/backends/mla/sparse_swa.py
(pages), v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_groups (up to 0.28), _bucket_layers_by_page_size (0.23
to 0.26), _get_packed_kv_cache_layout (0.27 and 0.28), _get_packed_kv_cache_groups (from 0.29), and
get_max_concurrency_for_kv_cache_config, which weighs pages up to 0.26 and counts them from 0.27.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.serving.common.kv_cache import LayerGroup, LayerSpec, PoolPlan
from vramwise.units import round_up

BLOCK = 256  # tokens in a block of compressed keys where none is given
ROW_BYTES, INDEX_ROW_BYTES = 584, 132  # 448 fp8 + 64 in 16 bit + 8 scales; 128 fp8 and a scale
ALIGNMENT = 576
LIGHT, HEAVY = 4, 128  # tokens that one compressed key stands for
WINDOW_BLOCK, LIGHT_BLOCK, HEAVY_BLOCK = 64, 4, 8
BUCKETS_VERSION, PACKED_VERSION = (0, 23), (0, 27)
GATHERED_REQUESTS = 4  # 0.20.0 to 0.33.0 models/deepseek_v4 PREFILL_CHUNK_SIZE
KEY_WIDTH, INDEX_WIDTH, STATE_BYTES = 512, 128, 4


@record
class _Part:
    """Layers that share page tables: page of each of a layer's caches, tokens in a page, window (None: all tokens)."""

    pages: tuple[int, ...]
    layers: int
    block: int
    window: int | None


def compresses_keys(model: Model) -> bool:
    """Whether a model keeps compressed keys, whose blocks are BLOCK tokens by default."""
    return has_fact("vllm", "compressed_keys", text_config(model).model_type)


def indexed_bytes(model: Model, length: int) -> int:
    """What an indexer's keys are gathered in: of 40 whole contexts, 8-bit values and a scale of 4 bytes each (v1/
    attention/backends/mla/indexer.py get_max_prefill_buffer_size; DeepSeek V4 keeps a fourth of the keys)."""
    if not model.has_indexer and not compresses_keys(model):
        return 0
    width = text_config(model).size("index_head_dim", default=128)
    return 40 * length // (LIGHT if compresses_keys(model) else 1) * (width + 4)


def gathered_bytes(model: Model, tokens: int, length: int) -> int:
    """Compressed keys of GATHERED_REQUESTS requests of the greatest length in 16 bit, beside a window and all tokens of
    the batch, which flash attention's kernels for latent keys read; 0 for a model that does not compress its keys."""
    if not compresses_keys(model):
        return 0
    rows = -(-length // LIGHT) + text_config(model).size("sliding_window") + tokens
    return GATHERED_REQUESTS * rows * KEY_WIDTH * 2


def compressed_pool(model: Model, version: tuple[int, ...], block: int) -> PoolPlan | None:
    """The pool of a model's caches; None for a model that does not compress its keys."""
    if not compresses_keys(model):
        return None
    config = text_config(model)
    rates = [cache.key_head_dim for cache in model.caches if cache.kind == "full"]
    light = sum(width == KEY_WIDTH // LIGHT for width in rates)
    heavy = len(rates) - light
    windows = _Part((_page(WINDOW_BLOCK * ROW_BYTES),), model.num_layers, WINDOW_BLOCK, config.size("sliding_window"))
    states = [
        _Part(
            (_state(LIGHT_BLOCK, 2 * KEY_WIDTH), _state(LIGHT_BLOCK, 2 * INDEX_WIDTH)), light, LIGHT_BLOCK, 2 * LIGHT
        ),
        _Part((_state(HEAVY_BLOCK, KEY_WIDTH),), heavy, HEAVY_BLOCK, HEAVY),
    ]
    keys = _page(block // LIGHT * ROW_BYTES), _page(block // LIGHT * INDEX_ROW_BYTES)
    heavy_keys = _page(max(1, block // HEAVY) * ROW_BYTES)
    parts = [part for part in (windows, *states) if part.layers]
    repeats = _least_padding([light, *(part.layers for part in parts)], light)
    whole = light * sum(keys) + heavy * heavy_keys
    weighs = version < PACKED_VERSION
    groups = [LayerGroup(LayerSpec("full", sum(keys) // block), 1, block, own_bytes=whole if weighs else 0)]
    in_a_group = []
    for part in parts:
        count = -(-part.layers // repeats)
        spec = LayerSpec("sliding", max(1, part.pages[0] // part.block), part.window)
        own = part.layers * sum(_padded(page, (*keys, heavy_keys)) for page in part.pages) if weighs else 0
        groups.append(LayerGroup(spec, count, part.block, own_bytes=own))
        in_a_group.append(-(-part.layers // count))
    most = max(light, *in_a_group)
    if version >= PACKED_VERSION:
        block_bytes = max(whole, *(n * sum(part.pages) for n, part in zip(in_a_group, parts, strict=True)))
    elif version >= BUCKETS_VERSION:
        block_bytes = most * keys[0] + light * keys[1] + heavy * heavy_keys
    else:
        block_bytes = most * (sum(keys) + heavy_keys)
    return PoolPlan(block_bytes, 1, tuple(groups))


def _padded(page: int, sizes: tuple[int, ...]) -> int:
    """The least page of the keys that holds a page; a larger one stays as it is."""
    return min((size for size in sizes if size >= page), default=page)


def _page(size: int) -> int:
    return round_up(size, ALIGNMENT)


def _state(block: int, width: int) -> int:
    """A page of a compressor's states: keys and scores of `block` tokens in fp32."""
    return _page(block * 2 * width * STATE_BYTES)


def _least_padding(counts: list[int], least: int) -> int:
    """The group size from `least` on that pads the counts least, the larger of equals (_approximate_gcd)."""
    return min(range(max(1, least), max(counts) + 1), key=lambda size: (sum(-n % size for n in counts), -size))
