"""KV cache and recurrent states of llama.cpp.

Source: ggml-org/llama.cpp src/llama-kv-cache.cpp, llama-memory-recurrent.cpp, llama-hparams.cpp.
"""

from __future__ import annotations

from vramwise.memo import of_model
from vramwise.models import Block, LayerCache, Model
from vramwise.models.operations.attention import AnyAttention
from vramwise.models.type_facts import has_fact
from vramwise.records import record
from vramwise.serving.common.convolutions import engine_conv_elements
from vramwise.serving.common.gguf.types import tensor_type
from vramwise.serving.llama_cpp.builds import IK_PREDICTION_CACHE_BUILD
from vramwise.serving.llama_cpp.own_engine import window_cells
from vramwise.serving.llama_cpp.settings import PADDING, Plan
from vramwise.units import round_up

STATE_BYTES = 4  # recurrent states are f32


@record
class CacheBytes:
    """Keys and values, and recurrent states, of each layer in order; cells of a full and of a sliding layer."""

    kv_by_layer: tuple[int, ...]
    state_by_layer: tuple[int, ...]
    full_cells: int
    window_cells: int

    @property
    def kv_bytes(self) -> int:
        return sum(self.kv_by_layer)

    @property
    def state_bytes(self) -> int:
        return sum(self.state_by_layer)


@of_model
def cache_bytes(model: Model, plan: Plan) -> CacheBytes:
    """Σ over layers of cells · streams · (K row + V row)."""
    kv: list[int] = []
    states: list[int] = []
    narrow = 0
    for block in model.layers():
        size = state = 0
        for cache in block.caches:
            if cache.kind == "recurrent":
                conv = engine_conv_elements(model, cache.conv_state_elements)
                state += (conv + cache.state_elements) * STATE_BYTES * plan.slots * plan.states_kept
                continue
            cells = cells_of(cache, plan)
            narrow = cells if cells != plan.cells else narrow
            size += cells * plan.streams * _cell_bytes(cache, block, plan)
        kv.append(size)
        states.append(state)
    kv.extend([_last_layer_bytes(model, plan)] * _prediction_layers(model, plan))
    return CacheBytes(tuple(kv), tuple(states), plan.cells, narrow)


def layer_cache_bytes(model: Model, plan: Plan) -> tuple[int, ...]:
    """Cache and states of each repeating layer."""
    cache = cache_bytes(model, plan)
    return tuple(kv + state for kv, state in zip(cache.kv_by_layer, cache.state_by_layer, strict=False))


def _prediction_layers(model: Model, plan: Plan) -> int:
    """Layers for multi-token prediction that ik_llama.cpp gives a cache of their own (logs of GLM-4.5 and 4.6); since
    October 2025 only where they predict (src/llama.cpp llama_kv_cache_init, 1f072ab13 and 09a88c9ae)."""
    if not plan.is_ik or not has_fact("ik_llama.cpp", "prediction_layers", model.config.model_type):
        return 0
    predicts = "mtp" in str((plan.settings.speculative or {}).get("method"))
    if plan.build_is_stated and plan.build >= IK_PREDICTION_CACHE_BUILD and not predicts:
        return 0
    return model.config.size("num_nextn_predict_layers", default=1, least=0)


def _last_layer_bytes(model: Model, plan: Plan) -> int:
    last = next((block for block in reversed(model.blocks) if block.caches), None)
    if last is None or last.caches[0].kind == "recurrent":
        return 0
    return cells_of(last.caches[0], plan) * plan.streams * _cell_bytes(last.caches[0], last, plan)


def cells_of(cache: LayerCache, plan: Plan) -> int:
    """Cells of one stream: the whole context, or the window and one batch for sliding layers."""
    if cache.window is None or plan.swa_full:
        return plan.cells
    if plan.own is not None and plan.own.window_memory is not None:
        memory = plan.own.window_memory
        return window_cells(cache.window, memory, plan.n_ctx, plan.slots, plan.n_batch, PADDING) or plan.cells
    sequences = plan.slots if plan.unified else 1
    return min(plan.cells, round_up(cache.window * sequences + plan.n_ubatch, PADDING))


def _cell_bytes(cache: LayerCache, block: Block, plan: Plan) -> int:
    """Bytes of one cell in one layer."""
    if cache.kind != "latent":
        heads = cache.num_key_value_heads
        return _row(plan.type_k, heads * cache.key_head_dim) + _row(plan.type_v, heads * cache.value_head_dim)
    if plan.latent is None:
        return _whole_heads(block, plan)
    latent = _row(plan.type_k, cache.latent_dim + cache.rope_dim)
    if cache.index_dim and plan.has_index_cache:
        latent += _row(plan.type_k, cache.index_dim)
    # -mla 1 keeps a transposed copy of the latent for the values; in ik_llama.cpp not with flash attention
    # (src/llama.cpp llama_kv_cache_init, since 6719288bf of March 2025)
    copies = plan.latent == 1 and not (plan.is_ik and plan.flash)
    return latent + (_row(plan.type_v, cache.latent_dim) if copies else 0)


def _whole_heads(block: Block, plan: Plan) -> int:
    """Keys and values of every head, as files without the split up-projection need them."""
    attention = next(block.operations(AnyAttention))
    heads = attention.num_heads
    _, k, v = attention.inputs[:3]
    return _row(plan.type_k, heads * k.width) + _row(plan.type_v, heads * v.width)


def _row(kind: str, elements: int) -> int:
    block = tensor_type(kind)
    return -(-elements // block.block_size) * block.block_bytes
