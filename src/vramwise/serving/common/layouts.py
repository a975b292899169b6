"""How engines pack, cut and store the weights of a rank."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from vramwise.engines import engine_named
from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.parallel_cut import ParallelCut
from vramwise.result import Node
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.gguf.quantizer import typed_tensors
from vramwise.serving.common.storage import Storage, storage_of
from vramwise.serving.common.weight_nodes import PART_NAMES, heaviest_stage, weights_node
from vramwise.serving.common.weights import Layout, Stages, rope_cache_bytes
from vramwise.units import GIB

PLAIN = Layout()
ROPE_SOURCE = "vLLM model_executor/layers/rotary_embedding: one table of positions × rotary_dim for all layers"


def engine_layout(settings: ServeSettings) -> Layout:
    """Padding, fusing and parallel cuts of the engine."""
    engine = engine_named(settings.engine)
    tp, stages = settings.tensor_parallel_size, engine_stages(settings)
    if not engine.fuses_layers:
        return Layout(ParallelCut(tp, expert_tensor_parallel_size=tp), stages)
    cut = ParallelCut(
        tensor_parallel_size=tp,
        expert_parallel_size=tp * settings.data_parallel_size if settings.expert_parallel else 1,
        expert_tensor_parallel_size=expert_ranks(settings),
        vocab_multiple=engine.vocab_multiple,
    )
    return Layout(cut, stages, fused=True, host_bytes=int((settings.cpu_offload_gb or 0) * GIB))


def engine_stages(settings: ServeSettings) -> Stages:
    """How the engine deals out layers to pipeline stages."""
    deals_last = engine_named(settings.engine).last_stages_take_more
    return Stages(settings.pipeline_parallel_size, settings.pipeline_layer_partition, deals_last)


def expert_ranks(settings: ServeSettings) -> int:
    """Ranks that cut each expert, those of data parallelism too where the engine has it so."""
    if settings.expert_parallel:
        return 1
    copies = settings.data_parallel_size if engine_named(settings.engine).experts_over_data_ranks else 1
    return settings.tensor_parallel_size * copies


def asked_storage(model: Model, settings: ServeSettings) -> Storage:
    """Storage as it is asked for, else as the checkpoint has it. Raises ScenarioError for GGUF without its type."""
    quantization = settings.quantization
    if quantization == "gguf":
        if settings.gguf_quant in (None, "custom"):
            raise ScenarioError("serve.gguf_quant", "gguf weights need the file's type (Q4_K_M, Q8_0, …)")
        quantization = None
    return storage_of(model, settings.dtype, quantization, settings.quantization_group_size)


def server_storage(model: Model, settings: ServeSettings, gpu: Gpu | None, narrow: str = "bf16") -> Storage:
    """Storage with the rule of servers for `dtype: auto`: checkpoints in fp32 become `narrow`, fp16 without bf16."""
    storage = asked_storage(model, settings)
    if settings.dtype != "auto" or storage.dtype != "fp32":
        return storage
    return replace(storage, dtype="fp16" if gpu is not None and gpu.supports("bf16") is False else narrow)


def capability_of(gpu: Gpu | None) -> float | None:
    """CUDA compute capability as a number, None for other cards and none."""
    if gpu is None or gpu.vendor != "NVIDIA":
        return None
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return None


def gfx_of(gpu: Gpu | None) -> str:
    """AMD's name of a card's architecture (`gfx942`); empty for other cards and none."""
    return gpu.compute_capability if gpu is not None and gpu.vendor == "AMD" else ""


def engine_weights(
    model: Model, settings: ServeSettings, storage: Storage, stage: int | None = None, *,
    beside: Iterable[Node] = (), left_out: Collection[str] = (),
) -> Node:  # fmt: skip
    """Bytes of the weights of one rank of a `stage` (None: of the heaviest), a child for each part of the model.

    Without the parts `left_out`, with what is kept `beside` them. Of GGUF files the tensors as their type stores them.
    """
    if settings.quantization == "gguf" and settings.gguf_quant is not None:
        return _gguf_weights(model, settings, settings.gguf_quant)
    layout = engine_layout(settings)
    weights = weights_node(model, storage, layout, heaviest_stage(model, storage, layout) if stage is None else stage)
    absent = {PART_NAMES[part] for part in left_out}
    return Node.group("weights", (*(part for part in weights.children if part.name not in absent), *beside))


def rotary_tables(model: Model, element_bytes: int, positions_factor: int = 1) -> tuple[Node, ...]:
    """The tables of cosines and sines where there are any; see `rope_cache_bytes`."""
    size = rope_cache_bytes(model, element_bytes, positions_factor)
    if not size:
        return ()
    return (Node("rotary tables", size, "exact", formula="positions × rotary_dim × dtype", source=ROPE_SOURCE),)


def _gguf_weights(model: Model, settings: ServeSettings, file_type: str) -> Node:
    """The tensors of a GGUF file, shared out over the GPUs."""
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    size = -(-sum(t.bytes for t in typed_tensors(model, file_type, bool(settings.imatrix))) // ranks)
    return Node.group(
        "weights",
        [Node("GGUF tensors", size, "derived", formula="Σ tensors of the file / GPUs", inputs={"gguf_quant": file_type},
              source="llama.cpp src/llama-quant.cpp llama_tensor_get_type")],
    )  # fmt: skip
