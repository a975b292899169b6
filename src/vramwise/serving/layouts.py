"""How each engine packs, cuts and stores the weights of a rank."""

from __future__ import annotations

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings

from .storage import Storage, storage_of
from .versions import version_of
from .weight_nodes import heaviest_stage, weights_node
from .weights import Layout, rope_cache_bytes

VOCAB_MULTIPLE = 64  # vLLM, SGLang: DEFAULT_VOCAB_PADDING_SIZE of vocab_parallel_embedding.py
PLAIN = Layout()
ROPE_SOURCE = "vLLM model_executor/layers/rotary_embedding: one table of positions × rotary_dim for all layers"


def engine_layout(settings: ServeSettings, engine: str) -> Layout:
    """Padding, fusing and parallel cuts of an engine."""
    if engine == "transformers":
        return Layout(settings.tensor_parallel_size, settings.pipeline_parallel_size)
    tp = settings.tensor_parallel_size
    return Layout(
        tensor_parallel=tp,
        pipeline_parallel=settings.pipeline_parallel_size,
        expert_parallel=tp * settings.data_parallel_size if settings.expert_parallel else 1,
        vocab_multiple=VOCAB_MULTIPLE if engine in ("vllm", "sglang") else 1,
        fused=True,
    )


def engine_storage(model: Model, settings: ServeSettings, engine: str, gpu: Gpu | None) -> Storage:
    """Storage with the engine's own rule for `dtype: auto`: engines turn fp32 checkpoints into 16 bits.

    vLLM before 0.9 and cards without bf16 take fp16 for them. Source: vLLM config/model.py _get_and_verify_dtype.
    """
    storage = storage_of(model, settings.dtype, settings.quantization, settings.quantization_group_size)
    if settings.dtype != "auto" or storage.dtype != "fp32" or engine == "transformers":
        return storage
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    old = engine == "vllm" and version_of(settings.engine_version) < (0, 9)
    return Storage("fp16" if no_bf16 or old else "bf16", storage.quantization, storage.ignored)


def engine_weights(
    model: Model, settings: ServeSettings, engine: str, storage: Storage, stage: int | None = None
) -> Node:
    """Weights of one rank (of the heaviest stage) with the tables that the engine keeps beside them."""
    layout = engine_layout(settings, engine)
    chosen = heaviest_stage(model, storage, layout) if stage is None else stage
    weights = weights_node(model, storage, layout, chosen)
    if engine == "transformers":
        return weights
    rope = rope_cache_bytes(model, storage.bytes_per_element)
    if not rope:
        return weights
    table = Node("rotary tables", rope, "exact", formula="positions × rotary_dim × dtype", source=ROPE_SOURCE)
    return Node.group("weights", (*weights.children, table))
