"""SGLang's own values by version and card: prefill chunk, captured batches, mem_fraction_static.

Source: server_args.py of 0.4.6, 0.4.7, 0.4.8, 0.4.9, 0.5.2, 0.5.3, 0.5.4, 0.5.6, 0.5.9, 0.5.10 and 0.5.12;
arg_groups/memory_hook.py and cuda_graph_hook.py of 0.5.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.resolved import AS_THE_MODEL
from vramwise.serving.common.storage import Storage, stated_cache
from vramwise.serving.sglang.compressed import compresses_keys
from vramwise.units import GIB, MIB

RESERVED_TABLE, RESERVED_FORMULA = (0, 4, 8), (0, 5, 3)
LARGER_SMALL_BATCH = (0, 5, 6)
PREFILL_GRAPHS, LARGER_SMALL_CHUNK = (0, 5, 10), (0, 5, 23)
CACHE_OF_MODELOPT = (0, 5, 3)
PLAIN_LATENT_ROWS = (0, 5, 10)
BLACKWELL, CONSUMER_BLACKWELL = 10.0, 12.0
AITER_SHARE_VERSION, AITER_SHARE, AITER_SHORT = (0, 5, 5), 0.85, 8192
AITER_LATENT_HEADS = frozenset({16, 128})
LEAST_RESERVED, LARGE_CARD = 10 * GIB, 60 * GIB
SMALL_CARD_MIB = 25_000
LEAST_FRACTION = 0.01

_Table = tuple[tuple[int, int, int, int], ...]
# card's GiB below -> chunked_prefill_size, cuda_graph_max_bs below four ranks and from four ranks on
_UNTIL_0_5_2: Final[_Table] = ((35, 2048, 8, 80), (90, 8192, 160, 160), (160, 8192, 256, 256))
_UNTIL_0_5_5 = ((20, 2048, 8, 8), (35, 2048, 16, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
_UNTIL_0_5_22 = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (160, 8192, 256, 512))
_NOW = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
_LARGEST = (16384, 512, 512)
# up to 0.4.7, cards up to 80 GiB: from so many ranks on -> fraction
_FIXED = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# 0.4.8 to 0.5.2, card's GiB below -> reserved GiB, and more for each rank
_RESERVED = ((35, 2.8, 0.1), (90, 9.5, 0.5), (160, 12.0, 0.5))
_RESERVED_LARGEST = 32.0
# sizes of captured prefills: first, last, step
_PREFILL_SIZES = ((4, 32, 4), (48, 256, 16), (288, 512, 32), (576, 1024, 64), (1280, 4096, 256), (4608, 10**6, 512))
PREFILL_GRAPH_MIB, LATENT_PREFILL_GRAPHS_MIB = 8, 1536
VIT_LAYERS, VIT_HIDDEN = 24, 1024  # ViT-L/14, against which towers are weighed

Version = tuple[int, ...]


def cache_dtype(
    model: Model, settings: ServeSettings, storage: Storage, version: Version, capability: float | None
) -> str:  # fmt: skip
    """`kv_cache_dtype: auto` of a ModelOpt checkpoint that states a cache of 8-bit floats: that one.

    Sparse latent attention: 8 bit on Blackwell and 16 bit elsewhere, whatever the checkpoint states.
    Source: 0.5.3 to 0.5.14 model_executor/model_runner.py configure_kv_cache_dtype (0.5.2 has none), 0.5.23
    mem_cache/kv_cache_dtype.py; layers/quantization/modelopt_quant.py from_config: a name, or a table of floats of 8
    bits. compressed-tensors' word on the cache is not heard. Sparse: 0.5.4 to 0.5.17 server_args.py
    _set_default_nsa_kv_cache_dtype, _set_default_dsa_kv_cache_dtype.
    """
    if settings.kv_cache_dtype != AS_THE_MODEL:
        return settings.kv_cache_dtype
    if _is_sparse(model):
        return "fp8_e4m3" if (capability or 0) >= BLACKWELL else AS_THE_MODEL
    if storage.rules is None or version < CACHE_OF_MODELOPT:
        return settings.kv_cache_dtype
    method, said = stated_cache(model)
    if isinstance(said, Mapping):
        states_fp8 = said.get("type") == "float" and said.get("num_bits") == 8
    else:
        states_fp8 = isinstance(said, str) and said.lower() == "fp8"
    return "fp8_e4m3" if method.startswith("modelopt") and states_fp8 else AS_THE_MODEL


def latent_scales(model: Model, version: Version, capability: float | None, gfx: str) -> bool:
    """Whether 8-bit rows of sparse latent attention have scales: not since 0.5.10 on Blackwell and AMD's cards.

    Those run trtllm and tilelang, which read plain rows; GLM has a kernel of its own on GeForce and GB10 since 0.5.17.
    Source: _set_default_nsa_backends and calculate_mla_kv_cache_dim of 0.5.9 to 0.5.17; 0.5.17 and 0.5.23
    arg_groups/overrides.py _dsa_split_backend_resolution.
    """
    if version < PLAIN_LATENT_ROWS:
        return True
    if (capability or 0) >= CONSUMER_BLACKWELL and has_fact("sglang", "scaled_rows", model.config.model_type, version):
        return True
    return not gfx and (capability or 0) < BLACKWELL


def _is_sparse(model: Model) -> bool:
    return any(cache.kind == "latent" and cache.index_dim for cache in model.caches)


def batch_defaults(given: ServeSettings, version: Version, card_bytes: int) -> tuple[int, int]:
    """chunked_prefill_size and cuda_graph_max_bs."""
    size = card_bytes / GIB
    if version < RESERVED_TABLE:
        small = card_bytes < SMALL_CARD_MIB * MIB
        chunk, few, many = (2048, 8, 80) if small else (8192, 160, 160)
    else:
        if version < RESERVED_FORMULA:
            table = _UNTIL_0_5_2
        elif version < LARGER_SMALL_BATCH:
            table = _UNTIL_0_5_5
        else:
            table = _UNTIL_0_5_22 if version < LARGER_SMALL_CHUNK else _NOW
        chunk, few, many = next((row[1:] for row in table if size < row[0]), _LARGEST)
    batch = (
        given.cuda_graph_max_bs
        or max(given.cudagraph_capture_sizes, default=0)
        or (few if given.tensor_parallel_size < 4 else many)
    )
    return given.chunked_prefill_size or chunk, batch


def static_fraction(
    given: ServeSettings, model: Model, version: Version, card_bytes: int, chunk: int, batch: int
) -> float:  # fmt: skip
    """mem_fraction_static = (card − reserved) / card, times a factor for vision towers.

    reserved = 512 MiB + 1.5 · chunk + 128 · ranks + 2 · largest batch (in MiB), 10 GiB at least above 60 GiB, and since
    0.5.10 8 MiB for each captured prefill (1,536 with a latent cache). 0.4.8 to 0.5.2 have a table by the card's size,
    earlier versions fixed fractions.
    """
    ranks = given.tensor_parallel_size * given.pipeline_parallel_size
    if version < RESERVED_TABLE:
        return _fixed(ranks, card_bytes)
    if version < RESERVED_FORMULA:
        per_card = next((row[1:] for row in _RESERVED if card_bytes < row[0] * GIB), (_RESERVED_LARGEST, 0.0))
        reserved = round((per_card[0] + ranks * per_card[1]) * GIB)
    else:
        reserved = _reserved(given, model, version, card_bytes, chunk, batch)
    method = str((given.speculative or {}).get("method") or "").lower()
    if method and method != "ngram" and version < LARGER_SMALL_CHUNK:
        eagle = 4 * GIB if version >= PREFILL_GRAPHS else 2 * GIB
        reserved += 6 * GIB if method == "standalone" else eagle
    share = round((card_bytes - reserved) / card_bytes, 3)
    return max(LEAST_FRACTION, round(share * _tower_factor(model), 6))


def attention_share(model: Model, version: Version, gfx: str, ranks: int, length: int) -> float:
    """What is left of mem_fraction_static, a given one too, where AITER attends and requests may be long.

    AITER is the default on AMD's data center cards: of latent attention with 16 or 128 heads on a rank alone, not of
    sparse attention, which has a backend of its own. Source: server_args.py of 0.5.4.post3 to 0.5.17 (0.5.4 has none)
    and arg_groups/attention_hook.py of 0.5.23; _get_default_attn_backend.
    """
    kinds = {cache.kind for cache in model.caches}
    short = length <= AITER_SHORT or not kinds - {"recurrent"}
    if version < AITER_SHARE_VERSION or not gfx.startswith("gfx9") or short:
        return 1.0
    if compresses_keys(model) or model.has_indexer:
        return 1.0
    if "latent" in kinds:
        heads = text_config(model).get("num_key_value_heads")
        if not isinstance(heads, int) or heads // ranks not in AITER_LATENT_HEADS:
            return 1.0
    return AITER_SHARE


def _fixed(ranks: int, card_bytes: int) -> float:
    """Up to 0.4.7; cards above 96 GiB may keep all but 18 GiB."""
    share = next(value for least, value in _FIXED if ranks >= least) if card_bytes <= 80 * GIB else _FIXED[-1][1]
    if card_bytes > 96 * GIB:
        share = min(share + 48 * GIB * (1 - share) / card_bytes, (card_bytes - 18 * GIB) / card_bytes)
    return round(share, 6)


def _reserved(
    given: ServeSettings, model: Model, version: Version, card_bytes: int, chunk: int, batch: int
) -> int:  # fmt: skip
    ranks = given.tensor_parallel_size * given.pipeline_parallel_size
    mebibytes = 512 + 1.5 * max(chunk, 2048) + 128 * ranks
    if not (given.enforce_eager and version >= LARGER_SMALL_CHUNK):
        mebibytes += 2 * batch
    if version >= PREFILL_GRAPHS and not given.enforce_eager:
        mebibytes += _prefill_graphs_mib(model, chunk)
    size = round(mebibytes * MIB)
    return max(size, LEAST_RESERVED) if card_bytes > LARGE_CARD else size


def _prefill_graphs_mib(model: Model, chunk: int) -> int:
    if model.has_latent_cache:
        return LATENT_PREFILL_GRAPHS_MIB
    captured = (n for first, last, step in _PREFILL_SIZES for n in range(first, min(last, chunk) + 1, step))
    return PREFILL_GRAPH_MIB * sum(1 for _ in captured)


def _tower_factor(model: Model) -> float:
    """0.95 · (0.8 … 1.05) for models with a vision tower, by its layers · hidden² (adjust_mem_fraction_for_vlm).

    A config with names of its own (depth, embed_dim) counts as ViT-L/14, but for Kimi K2.5's, whose class in
    configs/kimi_k25.py of 0.5.9 has the usual ones.
    """
    vision = model.config.table("vision_config")
    if vision is None or "vision" not in model.parts:
        return 1.0
    layers = vision.size("num_hidden_layers", default=vision.size("vt_num_hidden_layers", default=VIT_LAYERS))
    hidden = vision.size("hidden_size", default=vision.size("vt_hidden_size", default=VIT_HIDDEN))
    ratio = layers * hidden**2 / (VIT_LAYERS * VIT_HIDDEN**2)
    return 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (ratio - 1.0)))
