"""How each engine packs, cuts and stores the weights of a rank."""

from __future__ import annotations

from dataclasses import replace

from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.storage import Storage, storage_of
from vramwise.serving.common.versions import version_of
from vramwise.serving.common.weight_nodes import PART_NAMES, heaviest_stage, weights_node
from vramwise.serving.common.weights import Layout, rope_cache_bytes
from vramwise.units import MIB

VOCAB_MULTIPLE = 64  # vLLM, SGLang: DEFAULT_VOCAB_PADDING_SIZE of vocab_parallel_embedding.py
PLAIN = Layout()
FP32_ROPE_TYPES = frozenset({"gpt_oss"})  # vLLM models/gpt_oss.py makes its table in fp32
# vLLM rotary_embedding/mrope.py, 0.8.5 to 0.33.0 (since Qwen2.5-VL came): four times the positions, for the time index
# of long videos; not for these types from 0.32.0 on (qwen3_vl.py mrope_positions_factor; 0.31.0 still does)
MROPE_VERSION, MROPE_FACTOR = (0, 7, 2), 4
MROPE_PLAIN_VERSION, MROPE_PLAIN_TYPES = (0, 32), frozenset({"qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"})
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
        expert_cut=expert_ranks(settings, engine),
        vocab_multiple=VOCAB_MULTIPLE if engine in ("vllm", "sglang") else 1,
        fused=True,
    )


def expert_ranks(settings: ServeSettings, engine: str) -> int:
    """Ranks that cut each expert: in vLLM those of data parallelism too, in every version that has it.

    Source: vLLM 0.8.5 fused_moe/layer.py, 0.11.0 to 0.33.0 fused_moe/config.py flatten_tp_across_dp.
    """
    if settings.expert_parallel:
        return 1
    return settings.tensor_parallel_size * (settings.data_parallel_size if engine == "vllm" else 1)


def engine_storage(model: Model, settings: ServeSettings, engine: str, gpu: Gpu | None) -> Storage:
    """Storage with the engine's own rule for `dtype: auto`: engines turn fp32 checkpoints into 16 bits.

    vLLM before 0.9 and cards without bf16 take fp16 for them, or fp32 for the types that it does not run in fp16.
    Source: vLLM config/model.py _get_and_verify_dtype, _resolve_auto_dtype.
    """
    quantization = settings.quantization
    if quantization == "gguf":
        if settings.gguf_quant in (None, "custom"):
            raise ScenarioError("serve.gguf_quant", "gguf weights need the file's type (Q4_K_M, Q8_0, …)")
        quantization = None
    storage = storage_of(model, settings.dtype, quantization, settings.quantization_group_size)
    no_bf16 = gpu is not None and gpu.supports("bf16") is False
    if engine == "vllm" and settings.dtype == "auto" and storage.dtype in ("bf16", "fp32") and no_bf16:
        from vramwise.serving.vllm.dtypes import refuses_fp16

        wide = refuses_fp16(model, version_of(settings.engine_version))
        return replace(storage, dtype="fp32" if wide else "fp16")
    if settings.dtype != "auto" or storage.dtype != "fp32" or engine == "transformers":
        return storage
    old = engine == "vllm" and version_of(settings.engine_version) < (0, 9)
    return replace(storage, dtype="fp16" if no_bf16 or old else "bf16")


def capability_of(gpu: Gpu | None) -> float | None:
    """CUDA compute capability as a number, None for other cards and none."""
    if gpu is None or gpu.vendor != "NVIDIA":
        return None
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return None


def engine_weights(
    model: Model, settings: ServeSettings, engine: str, storage: Storage, capability: float | None = None,
    stage: int | None = None,
) -> Node:  # fmt: skip
    """Weights of one rank (of the heaviest stage) with the tables and copies that the engine keeps beside them."""
    if settings.quantization == "gguf" and settings.gguf_quant is not None:
        return _gguf_weights(model, settings, settings.gguf_quant)
    layout = engine_layout(settings, engine)
    chosen = heaviest_stage(model, storage, layout) if stage is None else stage
    weights = weights_node(model, storage, layout, chosen)
    beside: list[Node] = []
    if engine in ("vllm", "sglang"):
        wide = engine == "vllm" and model.config.model_type in FP32_ROPE_TYPES
        rope = rope_cache_bytes(model, 4 if wide else storage.bytes_per_element, _mrope_factor(model, settings, engine))
        if rope:
            formula = "positions × rotary_dim × dtype"
            beside.append(Node("rotary tables", rope, "exact", formula=formula, source=ROPE_SOURCE))
    parts = list(weights.children)
    if engine == "vllm":
        from vramwise.serving.common.constants import constant
        from vramwise.serving.vllm.extras import extra_weights
        from vramwise.serving.vllm.towers import towers_left_out

        absent = {PART_NAMES[part] for part in towers_left_out(model, settings)}
        parts = [part for part in parts if part.name not in absent]
        version = version_of(settings.engine_version)
        beside.extend(extra_weights(model, storage, layout, version, capability, chosen))
        buffers = constant("vllm", "weight_buffers", version)
        low, expected, high = (round(size * MIB) for size in (buffers.low, buffers.expected, buffers.high))
        beside.append(Node("runtime buffers", expected, buffers.kind, low, high, source=buffers.source))
    return Node.group("weights", (*parts, *beside))


def _mrope_factor(model: Model, settings: ServeSettings, engine: str) -> int:
    version = version_of(settings.engine_version)
    plain = model.config.model_type in MROPE_PLAIN_TYPES and version >= MROPE_PLAIN_VERSION
    return MROPE_FACTOR if engine == "vllm" and version >= MROPE_VERSION and not plain else 1


def _gguf_weights(model: Model, settings: ServeSettings, file_type: str) -> Node:
    """The tensors of a GGUF file, shared out over the GPUs."""
    from vramwise.serving.common.gguf.quantizer import typed_tensors

    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    size = -(-sum(t.bytes for t in typed_tensors(model, file_type, bool(settings.imatrix))) // ranks)
    return Node.group(
        "weights",
        [Node("GGUF tensors", size, "derived", formula="Σ tensors of the file / GPUs", inputs={"gguf_quant": file_type},
              source="llama.cpp src/llama-quant.cpp llama_tensor_get_type")],
    )  # fmt: skip
