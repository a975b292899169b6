"""ollama's own engine, which ran some types of model itself before v0.30.0, the rest through its copy of llama.cpp.

Sources: ollama/ollama fs/ggml/ggml.go OllamaEngineRequired, runner/ollamarunner/runner.go reserveWorstCaseGraph,
kvcache/causal.go Init and buildMask, ml/backend/ggml/ggml.go newTensor, model/models (v0.6.4 … v0.24.0).
"""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.operations.attention import AnyAttention
from vramwise.models.operations.simple import Linear
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.records import record
from vramwise.serving.common.layouts import capability_of
from vramwise.units import MIB, round_up

_FIRST_WITH_POOL = (0, 12, 4)
_FIRST_CASTING_MASKS, _FIRST_TAKING_OVER = (0, 12, 7), (0, 12, 8)
_TILE_COLUMNS, _TILE_ROOM, _VMM_GRANULARITY = 64, 32, 2 * MIB
_FIRST_WITH_TILES, _FIRST_IN_PLACES = 7.5, 8.9  # compute capability
_FULL_WAVES = 0.75
_POOL_LOOK_AHEAD = 1.05  # ggml-cuda.cu ggml_cuda_pool_leg


@record
class OwnEngine:
    """What it does in its own way for a type; without images, a graph of its order: inputs in buffers of their own, one
    output a slot.

    `window_memory`: tokens of a sequence that sliding layers keep at least; None where no layer slides.
    `joint_experts`: whether gate and up are copied out of one product.
    `ready_masks`: whether the graph that is reserved reads its mask in 16 bit, made before it (kvcache/causal.go
    buildMask).
    `counts_pool`: whether the printed size holds what kernels take from CUDA's pool (ggml-backend.cpp
    ggml_backend_sched_get_attempted_buffer_size, ggml_backend_cuda_buffer_size).
    `takes_over`: whether a GPU computes what has its weight on the host (ml/backend/ggml/ggml.go New: op_offload of
    ggml_backend_sched_new).
    """

    text_alone: bool
    window_memory: int | None
    joint_experts: bool
    ready_masks: bool
    counts_pool: bool
    takes_over: bool


def own_engine(model: Model, version: tuple[int, ...]) -> OwnEngine | None:
    """None for a type that goes through llama.cpp."""
    name = model.config.model_type
    memory = fact_value("ollama", "own_windows", name, version)
    text_alone = has_fact("ollama", "own_graph", name, version)
    if memory is None and not text_alone:
        return None
    return OwnEngine(
        text_alone,
        None if memory is None else int(memory),
        has_fact("ollama", "own_joint_experts", name, version),
        version < _FIRST_CASTING_MASKS,
        version >= _FIRST_WITH_POOL,
        version >= _FIRST_TAKING_OVER,
    )


def window_cells(window: int, memory: int, n_ctx: int, slots: int, n_batch: int, padding: int) -> int | None:
    """What each slot keeps, a token more where slots share, and one batch; None where the whole context is less."""
    kept = max(memory, window + (slots > 1))
    return None if kept * slots >= n_ctx else round_up(kept * slots + n_batch, padding)


def most_pool_bytes(model: Model, tokens: int) -> int:
    """Of the products of a layer by cuBLAS or hipBLAS, one for each size, since the pool keeps what smaller ones took:
    weights, what goes in and what comes out, in 16 bit."""
    sizes = {tuple(sorted(op.parameters[0].shape)) for block in model.layers() for op in block.operations(Linear)}
    return round(_POOL_LOOK_AHEAD * 2 * sum(a * b + tokens * (a + b) for a, b in sizes))


def attention_pool_bytes(model: Model, tokens: int, gpu: Gpu | None) -> int:
    """What flash attention on tensor cores takes of CUDA's pool: room for the ends of tiles, 32 bytes an element where
    4 are needed (fattn-common.cuh launch_fattn: `dst_tmp_meta`, whose elements are pairs, is given a size in bytes).

    A block a tile, or since Ada, and where whole waves would leave a quarter idle, one for each place of the GPU's
    multiprocessors, two each.
    """
    capability = _FIRST_WITH_TILES if gpu is None else capability_of(gpu) or 0
    if capability < _FIRST_WITH_TILES:
        return 0
    places, most = 2 * (gpu.sm_count or 0) if gpu is not None else 0, 0
    for op in (op for block in model.layers() for op in block.operations(AnyAttention)):
        tiles = -(-tokens * op.num_heads // _TILE_COLUMNS)
        waves = -(-tiles // places) if places else 0
        fills = tiles >= _FULL_WAVES * waves * places
        blocks = places if places and (capability >= _FIRST_IN_PLACES or not fills) else tiles
        most = max(most, blocks * _TILE_COLUMNS * (4 + op.inputs[2].width) * _TILE_ROOM)
    return round_up(most, _VMM_GRANULARITY)
