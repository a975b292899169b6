"""DeepSeek V4's pools in SGLang: compressed keys, the indexer's, a window's whole keys, and the compressors' states.

All of them share what is left: a token takes its compressed keys, and a share of the window's pool. What does not grow
with the tokens is taken off first. Rows are the same whether the cache is asked for in 16 bits or in 8.
Source: SGLang 0.5.12 to 0.5.23 model_executor/pool_configurator.py DSV4PoolConfigurator, arg_groups/deepseek_v4_hook.py
(page size, requests, share of the window), mem_cache/deepseek_v4_memory_pool.py (rings). Drafting is not counted.
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import text_config
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import Version
from vramwise.units import round_up

PAGE = 256  # whatever is asked for
RUNNING = 256  # requests at once where nothing else is asked for
WINDOW_SHARE = 0.1  # tokens of the window's pool for each token of the others
LIGHT, HEAVY = 4, 128  # tokens that one compressed key stands for
LIGHT_RING, HEAVY_RING = 8, 128  # rows of states without drafts
LIGHT_WIDTHS, HEAVY_WIDTHS = 2 * 2, 2 * 1  # of a state: keys and scores, the light ones' of two groups that overlap
STATE_BYTES, SCALE_BYTES, SCALED, FP32_BYTES = 4, 8, 128, 4  # scales of the indexer's rows are fp32, for 128 values
EVICTED_EVERY, TAILS_OF_A_REQUEST = 128, 4  # SGLANG_SWA_EVICTION_INTERVAL, _resolve_swa_prefix_tails
OWN_LAYERS = (0, 5, 13)  # before, every entry of compress_ratios counts, those of predicting layers among them
HEAVY_STATES_OF_REQUESTS = (0, 5, 15)  # before, these states are of the window's pages
CAPPED_WINDOW = (0, 5, 21)  # the window's pool holds what requests need, where no share is asked for


@record
class CompressedPools:
    """Bytes of a token in all pools that grow with the tokens, and the pools that do not."""

    token_bytes: float
    fixed: Node | None


def compresses_keys(model: Model) -> bool:
    return has_fact("sglang", "compressed_keys", text_config(model).model_type)


def compressed_pools(
    model: Model, settings: ServeSettings, version: Version, span: tuple[int, int], requests: int
) -> CompressedPools | None:
    """The pools of the layers from `span`; None for a model that does not compress its keys."""
    if not compresses_keys(model):
        return None
    config = text_config(model)
    listed = config.get("compress_ratios")
    every = [rate for rate in listed if isinstance(rate, int)] if isinstance(listed, list) else []
    rates = every if version < OWN_LAYERS else every[slice(*span)]
    light, heavy = rates.count(LIGHT), rates.count(HEAVY)
    head, rope, index = (config.size(name) for name in ("head_dim", "qk_rope_head_dim", "index_head_dim"))
    window = config.size("sliding_window")
    row = head - rope + 2 * rope + SCALE_BYTES
    index_row = index + index // SCALED * FP32_BYTES
    page = PAGE if version >= CAPPED_WINDOW else window  # tokens that a ring of states goes with
    window_bytes = row * len(rates) + LIGHT_RING / page * LIGHT_WIDTHS * (head + index) * STATE_BYTES * light
    token = light * (row + index_row) / LIGHT + heavy * row / HEAVY
    heavy_state = HEAVY_WIDTHS * head * STATE_BYTES * heavy
    fixed = 0
    if version < HEAVY_STATES_OF_REQUESTS:
        window_bytes += HEAVY_RING / page * heavy_state
    else:
        fixed = round_up((requests + 1) * HEAVY_RING + HEAVY_RING + 1, HEAVY) * heavy_state
    if version < CAPPED_WINDOW or settings.swa_full_tokens_ratio is not None:
        token += (settings.swa_full_tokens_ratio or WINDOW_SHARE) * window_bytes
    else:
        fixed += round(_capped_tokens(settings, requests, window) * window_bytes)
    if not fixed:
        return CompressedPools(token, None)
    node = Node(
        "pools of the requests", fixed, "derived", fixed, fixed, formula="their states + their windows",
        inputs={"max_num_seqs": requests, "sliding_window": window},
        source="SGLang model_executor/pool_configurator.py DSV4PoolConfigurator",
    )  # fmt: skip
    return CompressedPools(token, node)


def _capped_tokens(settings: ServeSettings, requests: int, window: int) -> int:
    """Tokens of the window's pool: what requests hold between evictions, two chunks, and tails of cached prefixes."""
    held = requests * (window + EVICTED_EVERY + 2 * PAGE) + 2 * (settings.chunked_prefill_size or 0) + PAGE
    tails = 0 if settings.enable_prefix_caching is False else TAILS_OF_A_REQUEST * requests
    return round_up(held + tails * (window + PAGE), PAGE)
