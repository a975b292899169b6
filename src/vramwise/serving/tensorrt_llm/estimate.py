"""`serve` with TensorRT-LLM: a fraction of what is free at the fullest moment before goes to the KV cache.

Sources: PyTorch backend (1.0 on): tensorrt_llm/_torch/pyexecutor/_util.py KvCacheCreator, which runs max_num_tokens
through the model and takes fraction · (total − peak). Engines (before): cpp/tensorrt_llm/runtime/tllmRuntime.cpp and
docs/source/reference/memory.md; the context of an engine holds the activations of max_num_tokens.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from vramwise.formats import dtype
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again
from vramwise.serving.common.answer import capacity_of, card_notes, context_node
from vramwise.serving.common.constants import constant
from vramwise.serving.common.kv_cache import CacheDtypes, model_specs, sequence_bytes
from vramwise.serving.common.layouts import engine_weights, server_storage
from vramwise.serving.common.pooled import PooledBudget, fullest, pooled_result
from vramwise.serving.common.storage import Storage, dtype_notes
from vramwise.serving.common.versions import version_of
from vramwise.serving.common.widest_layer import widest_layer
from vramwise.units import GIB

DEFAULT_FRACTION = 0.9
DEFAULT_BATCH = 2048
DEFAULT_BATCHED_TOKENS = 8192
DEFAULT_BLOCK = 32


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    """pool = fraction · (card − context − weights − activations of max_num_tokens − buffers)."""
    storage = server_storage(model, scenario.serve, gpu)
    settings = _settings(scenario.serve, model, storage)
    stages = [_budget(model, settings, storage, gpu, stage) for stage in range(settings.pipeline_parallel_size)]
    budget = fullest(stages)
    pool = ceil(budget.least_pool / budget.share)
    budget = replace(budget, least_card=Quantity(*(budget.beside(end) + pool for end in ("low", "bytes", "high"))))
    capacity = capacity_of(scenario, gpu)
    available = None
    if capacity is not None:
        terms = (budget.weights, *budget.working, budget.context)
        taken = (sum(t.high for t in terms), sum(t.bytes for t in terms), sum(t.low for t in terms))
        available = Quantity(*sorted(int((capacity.usable_bytes - size) * budget.share) for size in taken))
    notes = (*dtype_notes(model, scenario.serve.dtype), *card_notes(gpu, storage.dtype, settings.quantization))
    return pooled_result(scenario, settings, model, source, gpu, again, budget, available, notes, stages)


def _settings(given: ServeSettings, model: Model, storage: Storage) -> ServeSettings:
    return given.replace(
        dtype=storage.dtype,
        max_model_len=given.max_model_len or model_length(model),
        max_num_seqs=given.max_num_seqs or DEFAULT_BATCH,
        max_num_batched_tokens=given.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS,
        gpu_memory_utilization=given.gpu_memory_utilization or DEFAULT_FRACTION,
        block_size=given.block_size or DEFAULT_BLOCK,
    )


def _budget(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None, stage: int) -> PooledBudget:
    name, own = settings.kv_cache_dtype, storage.bytes_per_element
    size = own if name == "auto" else dtype(name).bits / 8
    dtypes = CacheDtypes(size, own, own)
    specs = model_specs(
        model, settings.tensor_parallel_size, dtypes, False, settings.pipeline_parallel_size, stage
    )  # fmt: skip
    token, state = sequence_bytes(specs)
    return PooledBudget(
        weights=engine_weights(model, settings, storage, stage),
        working=(_activations(model, settings, own), _buffers()),
        graphs=Node(
            "CUDA graphs", 0, "assumed", formula="inside what the fraction leaves", source="not split in any log"
        ),
        context=context_node(gpu),
        cell_bytes=token,
        fixed_bytes=state,
        block_size=settings.block_size or DEFAULT_BLOCK,
        max_model_len=settings.max_model_len or 1,
        max_num_seqs=settings.max_num_seqs or 1,
        share_name="gpu_memory_utilization",
        share=settings.gpu_memory_utilization or DEFAULT_FRACTION,
    )


def _activations(model: Model, settings: ServeSettings, element_bytes: int) -> Node:
    """One pass of max_num_tokens: tokens · (widest layer + hidden-size copies) · dtype; engines keep more than that."""
    version = version_of(settings.engine_version)
    copies = constant("tensorrt-llm", "layer_hidden_copies", version).expected
    width = widest_layer(model, settings.tensor_parallel_size) + round(copies * model.hidden_size / 2)
    tokens = settings.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS
    size = tokens * width * element_bytes
    kept = constant("tensorrt-llm", "activation_factor", version)
    return Node(
        "activations", round(kept.expected * size), "assumed", round(kept.low * size), round(kept.high * size),
        formula="tokens × (widest layer + hidden-size copies) × dtype × factor",
        inputs={"tokens": tokens, "factor": kept.expected}, source=kept.source,
    )  # fmt: skip


def _buffers() -> Node:
    value = constant("tensorrt-llm", "runtime_buffers", (0,))
    low, expected, high = (round(x * GIB) for x in (value.low, value.expected, value.high))
    return Node("runtime and decoder buffers", expected, value.kind, low, high, source=value.source)
