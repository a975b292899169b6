"""What SGLang's pools hold of a token, and how much of their room they take."""

from __future__ import annotations

from collections.abc import Iterator

from vramwise.formats import dtype
from vramwise.models import Block, LayerCache, Model
from vramwise.models.lengths import text_config
from vramwise.models.operations.attention import Attention
from vramwise.models.type_facts import has_fact
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.kv_cache import CacheDtypes, LayerSpec, engine_caches, layer_specs, sequence_bytes
from vramwise.serving.common.layouts import engine_stages
from vramwise.serving.common.versions import Version
from vramwise.serving.sglang.resolved import SglangResolved

WINDOW_TOKEN_SHARE = 0.8  # swa_full_tokens_ratio where it is not given
# from the first a windowed layer has a pool of its own, from the second only in types that are named
WINDOW_POOLS, WINDOW_POOLS_BY_TYPE, OWN_WINDOW_CELLS = (0, 4, 9), (0, 5, 8), (0, 5, 9)


def cell_bytes(model: Model, r: SglangResolved, stage: int) -> tuple[int, int]:
    """Bytes of a token in a stage's layers, and of a sequence's states; windowed layers hold a share of the tokens."""
    return sequence_bytes(_layers(model, r, stage, r.latent_scales), _window_share(r))


def allocated(size: int, model: Model, r: SglangResolved, stage: int) -> int:
    """What is allocated of a pool's room: other than that where a token is counted otherwise than it is kept.

    8-bit rows of sparse latent attention are counted without their scales and with a rotary part of 8 bit.
    Where windowed layers have other heads than full ones a token is counted until 0.5.8 with the full layers' heads in
    every layer, for one type with the windowed layers' own besides; the tokens of all layers are then dealt out by
    layers. Source: 0.5.7 to 0.5.8.post1 model_executor/model_runner_kv_cache_mixin.py get_cell_size_per_token,
    set_num_tokens_hybrid_swa (0.5.9 counts what it makes); 0.5.12 to 0.5.23 model_executor/pool_configurator.py.
    """
    specs = _layers(model, r, stage, r.latent_scales)
    held = sequence_bytes(specs, _window_share(r))[0]
    if model.has_indexer:
        return round(size * held / sequence_bytes(_layers(model, r, stage, False))[0])
    windowed = [spec for spec in specs if spec.window is not None]
    if r.version >= OWN_WINDOW_CELLS or len(windowed) in (0, len(specs)):
        return size
    full = len(specs) - len(windowed)
    counted = len(specs) * next(spec.token_bytes for spec in specs if spec.window is None)
    if has_fact("sglang", "windows_counted_twice", model.config.model_type, r.version):
        counted += sum(spec.token_bytes for spec in windowed)
    return round(size * held * len(specs) / (counted * (full + _window_share(r) * len(windowed))))


def _layers(model: Model, r: SglangResolved, stage: int, latent_scales: bool) -> tuple[LayerSpec, ...]:
    """The layers whose tokens a stage's pool holds: its own, or all of the model where the class does not say its own.

    Source: 0.5.9 model_executor/model_runner.py: start_layer and end_layer of the class, else all layers.
    """
    blocks = list(model.layers())
    if not has_fact("sglang", "whole_pools", model.config.model_type, r.version):
        first, end = engine_stages(r.settings).spans(model.num_layers)[stage]
        blocks = blocks[first:end]
    dtypes = CacheDtypes(
        r.cache_element_bytes, r.storage.bytes_per_element, _state_element_bytes(model, r.settings),
        latent_scales=latent_scales,
    )  # fmt: skip
    caches = engine_caches(model, _caches(model, blocks))
    return layer_specs(caches, r.settings.tensor_parallel_size, dtypes, windows=_window_pools(model, r.version))


def _caches(model: Model, blocks: list[Block]) -> Iterator[LayerCache]:
    """Caches of layers; one that attends to an earlier layer's keys has room of its own all the same, and one that
    attends to those of another model (a drafter's) has none.

    Source: 0.5.12 to 0.5.23, where num_kv_shared_layers is read by models/gemma4_causal.py and gemma3n_causal.py alone.
    """
    shares = bool(text_config(model).get("num_kv_shared_layers"))
    by_window = {cache.window: cache for cache in model.caches if cache.kind != "none"}
    for block in blocks:
        windows = [op.window for op in block.ops if isinstance(op, Attention)]
        for cache in block.caches:
            yield by_window.get(windows[0], cache) if shares and cache.kind == "none" else cache


def _window_share(r: SglangResolved) -> float:
    return r.settings.swa_full_tokens_ratio or WINDOW_TOKEN_SHARE


def _state_element_bytes(model: Model, settings: ServeSettings) -> int:
    """As asked, else as the config says, else 4 (0.5.23 configs/mamba_utils.py mamba2_state_dtype)."""
    asked = settings.mamba_ssm_cache_dtype
    stated = asked if asked != "auto" else text_config(model).get("mamba_ssm_dtype")
    return dtype(stated).bits // 8 if isinstance(stated, str) else 4


def _window_pools(model: Model, version: Version) -> bool:
    """Whether windowed layers hold fewer tokens than full ones."""
    if version < WINDOW_POOLS_BY_TYPE:
        return version >= WINDOW_POOLS
    types = (model.config.model_type, text_config(model).model_type)
    return any(has_fact("sglang", "window_pool", kind, version) for kind in types)
