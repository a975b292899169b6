"""ollama's own engine, which ran some types of model itself before v0.30.0, the rest through its copy of llama.cpp.

Sources: ollama/ollama fs/ggml/ggml.go OllamaEngineRequired, runner/ollamarunner/runner.go reserveWorstCaseGraph,
kvcache/causal.go Init and buildMask, ml/backend/ggml/ggml.go newTensor, model/models (v0.6.4 … v0.24.0).
"""

from __future__ import annotations

from vramwise.models import Model
from vramwise.models.operations.simple import Linear
from vramwise.models.type_facts import fact_value, has_fact
from vramwise.records import record
from vramwise.units import round_up

_FIRST_READING_HOST, _LAST_READING_HOST = (0, 11, 5), (0, 12, 4)
"""ggml-cuda.cu's `integrated` was heeded by v0.11.10 and v0.12.0, not by v0.11.4, v0.12.6 and later."""
_FIRST_WITH_POOL = (0, 12, 4)
_POOL_LOOK_AHEAD = 1.05  # ggml-cuda.cu ggml_cuda_pool_leg


@record
class OwnEngine:
    """What it does in its own way for a type; without images, a graph of its order: inputs in buffers of their own, one
    output a slot.

    `window_memory`: tokens of a sequence that sliding layers keep at least; None where no layer slides.
    `joint_experts`: how gate and up are read out of one product: `copied`, `sliced`, or not at all.
    `counts_pool`: whether the printed size holds what kernels take from CUDA's pool (ggml-backend.cpp
    ggml_backend_sched_get_attempted_buffer_size, ggml_backend_cuda_buffer_size).
    """

    text_alone: bool
    window_memory: int | None
    joint_experts: str
    reads_host: bool
    counts_pool: bool


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
        fact_value("ollama", "own_joint_experts", name, version) or "",
        _FIRST_READING_HOST <= version < _LAST_READING_HOST,
        version >= _FIRST_WITH_POOL,
    )


def window_cells(window: int, memory: int, n_ctx: int, slots: int, n_batch: int, padding: int) -> int | None:
    """What each slot keeps, a token more where slots share, and one batch; None where the whole context is less."""
    kept = max(memory, window + (slots > 1))
    return None if kept * slots >= n_ctx else round_up(kept * slots + n_batch, padding)


def most_pool_bytes(model: Model, tokens: int) -> int:
    """Of the largest product of a layer by cuBLAS or hipBLAS: weights, what goes in and what comes out, in 16 bit."""
    shapes = [op.parameters[0].shape for block in model.layers() for op in block.operations(Linear)]
    most = max((rows * columns + tokens * (rows + columns) for rows, columns in shapes), default=0)
    return round(_POOL_LOOK_AHEAD * 2 * most)
