"""`serve` with text-generation-inference: a warm-up prefill, then blocks from what is free.

blocks = (free · 0.95 − graphs) / block bytes, as its warm-up prints max_batch_total_tokens; the source was not read,
so the shares are assumed (constants.csv).
"""

from __future__ import annotations

from vramwise.formats import dtype
from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.answer import capacity_of, card_notes, context_node, resolved
from vramwise.serving.constants import constant
from vramwise.serving.kv_cache import CacheDtypes, model_specs, sequence_bytes
from vramwise.serving.layouts import engine_storage, engine_weights
from vramwise.serving.lengths import model_length
from vramwise.serving.pooled import PooledBudget, pooled_result
from vramwise.serving.storage import Storage, dtype_notes
from vramwise.serving.vllm.activations import widest_layer

DEFAULT_PREFILL_TOKENS = 4096
DEFAULT_REQUESTS = 128


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None) -> Result:
    """pool = share · (card − context − weights − warm-up prefill)."""
    storage = engine_storage(model, scenario.serve, "tgi", gpu)
    settings = _settings(scenario.serve, model, storage)
    budget = _budget(model, settings, storage, gpu)
    capacity = capacity_of(scenario, gpu)
    available = None
    if capacity is not None:
        share = constant("tgi", "free_share", (0,))
        terms = (budget.weights, *budget.working, budget.context)
        taken = (sum(t.high for t in terms), sum(t.bytes for t in terms), sum(t.low for t in terms))
        shares = (share.low, budget.share, share.high)
        ends = sorted(int((capacity.usable_bytes - size) * part) for size, part in zip(taken, shares, strict=True))
        available = Quantity(*ends)
    table = resolved(scenario, "serve", settings)
    notes = (*dtype_notes(model, scenario.serve.dtype), *card_notes(gpu, storage.dtype, settings.quantization))
    return pooled_result(scenario, model, source, gpu, budget, available, table, notes)


def _settings(given: ServeSettings, model: Model, storage: Storage) -> ServeSettings:
    share = constant("tgi", "free_share", (0,)).expected
    return given.replace(
        dtype=storage.dtype,
        max_model_len=given.max_model_len or model_length(model),
        max_num_seqs=given.max_num_seqs or DEFAULT_REQUESTS,
        max_num_batched_tokens=given.max_num_batched_tokens or DEFAULT_PREFILL_TOKENS,
        gpu_memory_utilization=given.gpu_memory_utilization or share,
        block_size=given.block_size or 1,
    )


def _budget(model: Model, settings: ServeSettings, storage: Storage, gpu: Gpu | None) -> PooledBudget:
    name, own = settings.kv_cache_dtype, storage.bytes_per_element
    size = own if name == "auto" else dtype(name).bits / 8
    ranks = settings.tensor_parallel_size
    specs = model_specs(model, ranks, CacheDtypes(size, own, own), False)
    token, state = sequence_bytes(specs)
    tokens = settings.max_num_batched_tokens or 1
    copies = constant("vllm", "layer_hidden_copies", (999,)).expected
    prefill = tokens * own * (widest_layer(model, ranks) + round(copies * model.hidden_size / 2))
    working = Node(
        "warm-up prefill", prefill, "assumed", prefill // 2, prefill * 2,
        formula="tokens × (widest layer + hidden-size copies) × dtype", inputs={"tokens": tokens},
        source="as in vLLM's forward pass",
    )  # fmt: skip
    return PooledBudget(
        weights=engine_weights(model, settings, "tgi", storage),
        working=(working,),
        graphs=Node("CUDA graphs", 0, "assumed", formula="inside what the share leaves", source="not split in any log"),
        context=context_node(gpu),
        cell_bytes=token,
        fixed_bytes=state,
        block_size=settings.block_size or 1,
        max_model_len=settings.max_model_len or 1,
        max_num_seqs=settings.max_num_seqs or 1,
        share_name="gpu_memory_utilization",
        share=settings.gpu_memory_utilization or 0.95,
        tensor_parallel=settings.tensor_parallel_size,
    )
