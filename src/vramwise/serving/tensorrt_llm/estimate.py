"""`serve` with TensorRT-LLM: a fraction of what is free at the fullest moment before goes to the KV cache.

Sources: PyTorch backend (1.0 on): tensorrt_llm/_torch/pyexecutor/_util.py KvCacheCreator, which runs max_num_tokens
through the model and takes fraction · (total − peak). Engines (before): cpp/tensorrt_llm/runtime/tllmRuntime.cpp and
docs/source/reference/memory.md; the context of an engine holds the activations of max_num_tokens.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from vramwise.hardware import Gpu
from vramwise.hardware.room import room_of
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.adapters import adapted_sizes, adapters_asked
from vramwise.serving.common.advice import Again
from vramwise.serving.common.answer import card_notes, context_node
from vramwise.serving.common.kv_cache import CacheDtypes, model_specs, sequence_bytes
from vramwise.serving.common.layouts import capability_of, engine_layout, engine_stages, engine_weights, server_storage
from vramwise.serving.common.pooled import PooledBudget, fullest, pooled_result
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.serving.common.storage import dtype_notes
from vramwise.serving.common.versions import version_of
from vramwise.serving.tensorrt_llm.activations import activations
from vramwise.serving.tensorrt_llm.buffers import buffers
from vramwise.serving.tensorrt_llm.defaults import default_batch, default_tokens
from vramwise.serving.tensorrt_llm.experts import expert_padding

DEFAULT_FRACTION = 0.9
DEFAULT_BLOCK = 32
_QKV = frozenset({"q_proj", "k_proj", "v_proj"})
_PAGE_RANKS, _LARGEST_RANK = 8, 64  # PeftCacheConfig: optimalAdapterSize, maxAdapterSize


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    """pool = fraction · (card − context − weights − activations of max_num_tokens − buffers)."""
    r = resolve(scenario.serve, model, gpu)
    stages = [_budget(model, r, gpu, stage) for stage in range(r.settings.pipeline_parallel_size)]
    budget = fullest(stages)
    pool = ceil(budget.least_pool / budget.share)
    budget = replace(budget, least_card=Quantity(*(budget.beside(end) + pool for end in ("low", "bytes", "high"))))
    room = room_of(scenario, gpu)
    available = None
    if room is not None:
        terms = (budget.weights, *budget.working, budget.context)
        taken = (sum(t.high for t in terms), sum(t.bytes for t in terms), sum(t.low for t in terms))
        available = Quantity(*sorted(int((room.free_bytes - size) * budget.share) for size in taken))
    notes = (*dtype_notes(model, scenario.serve.dtype), *card_notes(gpu, r.storage.dtype, r.settings.quantization))
    return pooled_result(scenario, r, model, source, gpu, again, budget, available, notes, stages)


def resolve(given: ServeSettings, model: Model, gpu: Gpu | None) -> ResolvedServe:
    """Defaults of trtllm-serve, and of the program that built the engine."""
    storage = server_storage(model, given, gpu)
    version = version_of(given.engine_version)
    length = given.max_model_len or model_length(model)
    seqs = given.max_num_seqs or default_batch(version)
    tokens = given.max_num_batched_tokens or default_tokens(version, seqs, length)
    share, block = given.gpu_memory_utilization or DEFAULT_FRACTION, given.block_size or DEFAULT_BLOCK
    settings = given.replace(
        dtype=storage.dtype, max_model_len=length, max_num_seqs=seqs, max_num_batched_tokens=tokens,
        gpu_memory_utilization=share, block_size=block,
    )  # fmt: skip
    return ResolvedServe(
        settings=settings, version=version, storage=storage, max_model_len=length,
        batched_tokens=tokens, max_num_seqs=seqs, block_size=block, share=share,
    )  # fmt: skip


def _budget(model: Model, r: ResolvedServe, gpu: Gpu | None, stage: int) -> PooledBudget:
    own, settings = r.storage.bytes_per_element, r.settings
    dtypes = CacheDtypes(r.cache_element_bytes, own, own)
    specs = model_specs(
        model, settings.tensor_parallel_size, dtypes, False, engine_stages(settings), stage
    )  # fmt: skip
    token, state = sequence_bytes(specs)
    return PooledBudget(
        weights=_weights(model, r, gpu, stage),
        working=(activations(model, r, capability_of(gpu)), buffers(model, r)),
        graphs=Node(
            "CUDA graphs", 0, "assumed", formula="inside what the fraction leaves", source="not split in any log"
        ),
        context=context_node(gpu),
        cell_bytes=token,
        fixed_bytes=state,
        block_size=r.block_size,
        max_model_len=r.max_model_len,
        max_num_seqs=r.max_num_seqs,
        share_name="gpu_memory_utilization",
        share=r.share,
    )


def _weights(model: Model, r: ResolvedServe, gpu: Gpu | None, stage: int) -> Node:
    """The weights of a stage, what pads them, and its cache of adapters (cpp/…/batch_manager/peftCacheManager.cpp).

    A slot is as wide as the smallest module; there are max_loras · rank · layers · modules times those of the widest,
    in whole pages of eight ranks of every module. Of q, k and v those that are not named are modules too.
    """
    padding = expert_padding(model, r, capability_of(gpu), stage)
    weights = engine_weights(model, r.settings, r.storage, stage, beside=padding)
    held, rank = adapters_asked(r.settings)
    if not held:
        return weights
    first, end = engine_stages(r.settings).spans(model.num_layers)[stage]
    blocks, cut, targets = list(model.layers())[first:end], engine_layout(r.settings).cut, r.settings.lora_targets
    if isinstance(targets, tuple) and set(targets) & _QKV:
        targets = tuple(dict.fromkeys((*targets, *sorted(_QKV))))
    layers = [sizes for block in blocks if (sizes := adapted_sizes(block, cut, targets))]
    widths = dict(size for sizes in layers for size in sizes)
    if not widths:
        return weights
    page, widest = min(widths.values()), max(widths.values())
    slots = held * rank * len(layers) * len(widths) * -(-widest // page)
    a_page = min(_PAGE_RANKS, rank) * sum(-(-width // page) for width in widths.values()) * len(layers)
    a_page = max(a_page, -(-min(_LARGEST_RANK, rank) * widest // page))
    size = -(-slots // a_page) * a_page * page * r.storage.bytes_per_element
    cache = Node(
        "adapters", size, "derived", size, size, formula="pages of slots × width × dtype",
        inputs={"max_loras": held, "max_lora_rank": rank, "modules": len(widths)},
        source="TensorRT-LLM cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp getPageManagerConfig",
    )  # fmt: skip
    return Node.group("weights", (*weights.children, cache))
