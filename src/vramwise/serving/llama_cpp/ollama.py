"""ollama's own values by version: context, slots, batch and flash attention.

Sources: ollama/ollama envconfig/config.go and api/types.go (v0.6.4 … v0.33.0-rc2), server/routes.go (context by total
VRAM since v0.15.5), server/sched.go automaticGenerationBatch (since v0.30.0, which starts llama-server),
fs/ggml/ggml.go FlashAttention (v0.12.3 … v0.20.0).
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.result import Capacity
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.versions import version_of
from vramwise.units import GIB

LLAMA_SERVER_VERSION = (0, 30)  # runs llama-server; before it had runners of its own
STREAMS_VERSION = (0, 11, 5)  # its llama.cpp since August 2025 keeps slots apart (kv_unified = false in logs)
FLASH_WHERE_SUPPORTED_VERSION = (0, 13, 5)  # logs of it and of 2026: "Flash Attention was auto, set to enabled"
_ONE_SLOT_VERSION = (0, 9, 7)  # before: four slots where they fit
_CONTEXTS = (((0, 15, 5), None), ((0, 6, 7), 4096), ((0,), 2048))  # None: by VRAM
_CONTEXT_TIERS = ((47 * GIB, 262_144), (23 * GIB, 32_768), (0, 4096))
_OLD_SLOTS = 4
BATCH, MEDIUM_BATCH, LARGE_BATCH = 512, 1024, 2048
_LARGE_CONTEXT, _MEDIUM_CONTEXT = 32_768, 4096
_SURCHARGE = {LARGE_BATCH: 2 * GIB, MEDIUM_BATCH: 3 * GIB // 4}
_HEADROOM = {LARGE_BATCH: 60, MEDIUM_BATCH: 75}  # most percent of the free memory that the model may take
_FREE_PERCENT = 80


@record
class OllamaValues:
    """What ollama passes on to its runner; `n_ctx` is that of all slots."""

    n_ctx: int
    n_batch: int
    slots: int
    flash: bool
    runs_llama_server: bool


def ollama_values(
    given: ServeSettings, model: Model, capacity: Capacity | None, num_gpus: int, file_bytes: int
) -> OllamaValues:
    """Given values, else those of the version; `file_bytes` enter the choice of the batch."""
    version = version_of(given.engine_version)
    newest = version >= LLAMA_SERVER_VERSION
    total = capacity.total_bytes * num_gpus if capacity is not None else 0
    slots = given.n_parallel or (1 if version >= _ONE_SLOT_VERSION else _OLD_SLOTS)
    n_ctx = given.n_ctx or given.max_model_len
    if n_ctx is None:
        n_ctx = min(_default_context(version, total), model_length(model)) * slots
    batch = given.n_batch or (_batch(model, n_ctx, file_bytes, total) if newest else BATCH)
    flash = given.flash_attn
    if flash is None:
        supported = version >= FLASH_WHERE_SUPPORTED_VERSION
        flash = supported or has_fact("ollama", "flash_attention", model.config.model_type, version)
    return OllamaValues(n_ctx, batch, slots, flash, newest)


def _default_context(version: tuple[int, ...], total: int) -> int:
    fixed = next(size for first, size in _CONTEXTS if version >= first)
    return fixed if fixed is not None else next(size for least, size in _CONTEXT_TIERS if total >= least)


def _batch(model: Model, n_ctx: int, file_bytes: int, total: int) -> int:
    """Larger batches for longer contexts, where ollama's own rough prediction leaves room for them."""
    batch = LARGE_BATCH if n_ctx > _LARGE_CONTEXT else MEDIUM_BATCH if n_ctx > _MEDIUM_CONTEXT else BATCH
    predicted = file_bytes + _predicted_cache(model, n_ctx)
    while batch > BATCH and total and not _has_room(batch, predicted, total):
        batch = MEDIUM_BATCH if batch > MEDIUM_BATCH else BATCH
    return batch


def _has_room(batch: int, predicted: int, total: int) -> bool:
    limit = total * _FREE_PERCENT // 100
    return predicted <= min(limit, total * _HEADROOM[batch] // 100) and _SURCHARGE[batch] <= limit - predicted


def _predicted_cache(model: Model, n_ctx: int) -> int:
    """2 · layers · least KV heads · hidden / heads · n_ctx · 2 bytes."""
    config = model.config
    heads = config.size("num_attention_heads", default=1)
    kv_heads = config.size("num_key_value_heads", default=heads)
    return 4 * model.num_layers * max(kv_heads, 1) * (model.hidden_size // max(heads, 1)) * n_ctx
