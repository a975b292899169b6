"""`serve` with SGLang: weights and KV cache inside mem_fraction_static, all else in what is left.

Source: SGLang 0.5.4 model_executor/model_runner.py profile_max_num_token, 0.5.23 mem_cache/kv_cache_configurator.py.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from vramwise.engines.sglang import RECORD
from vramwise.errors import ScenarioError
from vramwise.hardware import Gpu
from vramwise.hardware.room import room_of
from vramwise.models import Model
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.serving.common.adapters import Targets, adapted_sizes
from vramwise.serving.common.advice import Again
from vramwise.serving.common.answer import card_notes, context_node
from vramwise.serving.common.constants import constant, graphs_here, learned_bytes
from vramwise.serving.common.layouts import engine_layout, engine_stages
from vramwise.serving.common.pooled import PooledBudget, fullest, pooled_result
from vramwise.serving.common.storage import dtype_notes
from vramwise.serving.common.versions import version_notes
from vramwise.serving.sglang.compressed import CompressedPools, compressed_pools
from vramwise.serving.sglang.defaults import AITER_SHARE
from vramwise.serving.sglang.graphs import beside_graphs, graphs_node
from vramwise.serving.sglang.pools import allocated, cell_bytes
from vramwise.serving.sglang.resolved import DEFAULT_VERSION, SglangResolved, resolve
from vramwise.serving.sglang.weights import (
    absorbed_projections,
    copied_experts,
    loaded_scales,
    sglang_weights,
    whole_embeddings,
)
from vramwise.units import GIB

ADAPTER_SLOTS, ADAPTER_RANK = 8, 16
"""--max-loras-per-batch where it is not given (0.5.23 server_args.py), and the rank that the command's reader takes."""
EXPERTS_ADAPTERS = "the slots of adapters are those of layers without experts: adapters of experts are not counted"
# mamba_full_memory_ratio; MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO
STATE_RATIO, STATE_SLOTS_OF_A_REQUEST = 0.9, 3
PADDED_STATES_VERSION = (0, 5, 23)  # one more slot of states; read there, 0.5.4 has none


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    """pool = free before load · mem_fraction_static − weights; activations and graphs must fit in the rest."""
    room = room_of(scenario, gpu)
    r = resolve(scenario.serve, model, gpu, None if room is None else room.seen_bytes)
    stages = [_budget(model, r, gpu, stage) for stage in range(r.settings.pipeline_parallel_size)]
    budget = fullest(stages)
    stage = stages.index(budget)
    available = None
    if room is not None:
        ends = []
        for context, weights in (
            (budget.context.high, budget.weights.high),
            (budget.context.bytes, budget.weights.bytes),
            (budget.context.low, budget.weights.low),
        ):
            ends.append(round((room.free_bytes - context) * r.share) - weights)
        if budget.fixed_bytes:
            budget, ends = _with_states(budget, ends, r)
        if budget.request_pools is not None:
            ends = [end - budget.request_pools.bytes for end in ends]
        ends = [allocated(end, model, r, stage) for end in ends]
        available = Quantity(*sorted(_at_most(end, budget, r.settings.max_total_tokens) for end in ends))
    shorter = None
    cut = budget.most_pool is not None and budget.most_pool < budget.one_request
    if available is not None and (scenario.serve.max_model_len is None or cut):
        # managers/tp_worker.py of 0.5.4: max_req_len = min(context_len, max_total_num_tokens) − 1
        budget = budget.following(int(available.expected))
        shorter = budget.max_model_len if budget.max_model_len < r.max_model_len else None
        r = r.limited_to(budget.max_model_len)
    budget = replace(budget, least_card=_least_card(budget, r.share))
    limited = [f"SGLang starts all the same and takes requests of {shorter:,} tokens at most"] if shorter else []
    adapted = r.settings.max_loras is not None or r.settings.max_lora_rank is not None
    notes = (
        *([EXPERTS_ADAPTERS] if adapted and _has_experts(model) else []),
        *version_notes(RECORD.title, scenario.serve.engine_version, DEFAULT_VERSION),
        *limited,
        *dtype_notes(model, scenario.serve.dtype),
        *card_notes(gpu, r.storage.dtype, r.settings.quantization),
    )
    return pooled_result(scenario, r, model, source, gpu, again, budget, available, notes, stages)


def _least_card(budget: PooledBudget, fraction: float) -> Quantity:
    """The smallest card whose share holds weights and the least pool, and which holds all else beside the share.

    share = (card − context) · fraction; states take 0.9 / 1.9 of what it leaves to pools, with padding for one more.
    """
    pool = budget.least_pool
    if budget.request_pools is not None:
        pool += budget.request_pools.bytes
    if budget.states is not None:
        pool = max(ceil(pool * (1 + STATE_RATIO)), pool + 2 * budget.fixed_bytes)

    def least(end: str) -> int:
        context, weights = int(getattr(budget.context, end)), int(getattr(budget.weights, end))
        room = budget.beside(end) - context - weights  # what lies in the rest of the share
        cards = [context + ceil((weights + pool) / fraction)]
        if budget.most_pool is not None:
            cards.append(budget.beside(end) + budget.most_pool)
        elif fraction < 1:
            cards.append(context + ceil(room / (1 - fraction)))
        return max(cards, default=0)

    return Quantity(least("low"), least("bytes"), least("high"))


def _with_states(
    budget: PooledBudget, rest: list[int], r: SglangResolved
) -> tuple[PooledBudget, list[int]]:  # fmt: skip
    """Split what is left between states and tokens: slots = rest · 0.9 / 1.9 // bytes of a sequence's states.

    A request holds STATE_SLOTS_OF_A_REQUEST slots where prefixes are cached, which is the default; without the cache
    there are as many slots as requests. Since PADDED_STATES_VERSION the pool has one slot more, for padding.
    Source: handle_max_mamba_cache of 0.5.4 and 0.5.23.
    """
    padding = 1 if r.version >= PADDED_STATES_VERSION else 0
    size = budget.fixed_bytes
    cached = r.settings.enable_prefix_caching is not False
    counts = []
    for left in rest:
        fitting = max(0, int(left * STATE_RATIO / (1 + STATE_RATIO)) // size - padding)
        counts.append(fitting if cached else min(fitting, r.max_num_seqs))
    low, slots, high = sorted(counts)
    states = Node(
        "state pool", (slots + padding) * size, "derived", (low + padding) * size, (high + padding) * size,
        formula="slots × bytes of a sequence's states",
        inputs={"slots": slots, "bytes_per_sequence": size, "mamba_full_memory_ratio": STATE_RATIO},
        source="SGLang mem_cache/kv_cache_configurator.py _handle_max_mamba_cache",
    )  # fmt: skip
    requests = min(budget.max_num_seqs, max(1, slots // (STATE_SLOTS_OF_A_REQUEST if cached else 1)))
    tokens = [left - (count + padding) * size for left, count in zip(rest, counts, strict=True)]
    return replace(budget, states=states, max_num_seqs=requests), tokens


def _at_most(size: int, budget: PooledBudget, tokens: int | None) -> int:
    """The pool, cut to --max-total-tokens."""
    return size if tokens is None or not budget.cell_bytes else min(size, tokens * budget.cell_bytes)


def _budget(model: Model, r: SglangResolved, gpu: Gpu | None, stage: int) -> PooledBudget:
    pools = _compressed(model, r, stage)
    cell, fixed = cell_bytes(model, r, stage) if pools is None else (round(pools.token_bytes), 0)
    most = r.settings.max_total_tokens
    if most is not None and most < r.block_size:  # whole pages: model_executor refuses a pool of no tokens
        raise ScenarioError(
            "serve.max_total_tokens",
            f"{most:,} is less than a page of {r.block_size} tokens (block_size): the pool would be empty and SGLang "
            f"does not start; say {r.block_size} or more",
        )
    return PooledBudget(
        weights=_weights(model, r, gpu, stage),
        working=(beside_graphs(model, r, gpu),),
        graphs=graphs_here(
            graphs_node(model, r, gpu),
            gpu,
            "sglang",
            r.settings.engine_version,
            model.config.model_type,
            r.settings.tensor_parallel_size,
        ),
        context=_outside(r, gpu),
        cell_bytes=cell,
        fixed_bytes=fixed,
        block_size=r.block_size,
        max_model_len=r.max_model_len,
        max_num_seqs=r.max_num_seqs,
        share_name=_share_name(r),
        share=r.share,
        most_pool=most * cell if most is not None and cell else None,
        request_pools=None if pools is None else pools.fixed,
    )


def _share_name(r: SglangResolved) -> str:
    """The flag, and with it what AITER takes of its value."""
    fraction = r.settings.mem_fraction_static
    name = "mem_fraction_static"
    return name if fraction is None or fraction == r.share else f"{name} {fraction:g} × {AITER_SHARE:g} (AITER) ="


def _outside(r: SglangResolved, gpu: Gpu | None) -> Node:
    """The CUDA context, and what the ranks' communicators take before the free memory is read that the share is of."""
    context = context_node(gpu)
    if r.settings.tensor_parallel_size == 1:
        return context
    links = "distributed_unlinked" if gpu is not None and not gpu.is_linked else "distributed_linked"
    rest = constant("sglang", links, r.version)
    low, expected, high = (round(size * GIB) for size in (rest.low, rest.expected, rest.high))
    here = learned_bytes(
        "communicators", rest, gpu, "sglang", r.settings.engine_version, r.settings.tensor_parallel_size
    )  # fmt: skip
    own = Node("communicators", expected, rest.kind, low, high, source=rest.source)
    if here is not None:
        low, expected, high = (round(end) for end in here.ends)
        own = Node("communicators", expected, "calibrated", low, high, here.said, source=here.source)
    return Node.group("outside torch", (context, own))


def _weights(model: Model, r: SglangResolved, gpu: Gpu | None, stage: int) -> Node:
    """Weights with the little that loading takes beside them."""
    weights = sglang_weights(model, r.settings, r.storage, stage)
    rest = constant("sglang", "rest_bytes", (0,))
    low, expected, high = (round(size * GIB) for size in (rest.low, rest.expected, rest.high))
    loading = Node("loading", expected, rest.kind, low, high, source=rest.source)
    copies = (
        copied(model, r.settings, r.storage, gpu, stage)
        for copied in (copied_experts, loaded_scales, absorbed_projections, whole_embeddings)
    )
    more = (*copies, _adapters(model, r, stage))
    return Node.group("weights", (*weights.children, loading, *(node for node in more if node is not None)))


def _adapters(model: Model, r: SglangResolved, stage: int) -> Node | None:
    """Slots of the adapters' pool, made before the cache is: fused layers have A for each of their parts."""
    if r.settings.max_loras is None and r.settings.max_lora_rank is None:
        return None
    slots, rank = r.settings.max_loras or ADAPTER_SLOTS, r.settings.max_lora_rank or ADAPTER_RANK
    first, end = engine_stages(r.settings).spans(model.num_layers)[stage]
    cut = engine_layout(r.settings).cut
    targets = _with_their_fused(r.settings.lora_targets)
    blocks = list(model.layers())[first:end]
    elements = sum(size * rank for block in blocks for _, size in adapted_sizes(block, cut, targets))
    size = slots * elements * r.storage.bytes_per_element
    return Node(
        "LoRA slots", size, "derived", size, size, formula="slots × rank × Σ (in + out) × dtype",
        inputs={"max_loras": slots, "max_lora_rank": rank}, source="SGLang 0.5.23 lora/mem_pool.py init_buffers",
    )  # fmt: skip


def _with_their_fused(targets: Targets) -> Targets:
    """Names with those that one layer is fused of (0.5.23 lora/utils.py get_normalized_target_modules)."""
    groups = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
    named = targets if isinstance(targets, tuple) else ()
    more = (name for group in groups if set(group) & set(named) for name in group)
    return tuple(dict.fromkeys((*named, *more))) if named else targets


def _has_experts(model: Model) -> bool:
    return any(len(parameter.shape) == 3 for block in model.layers() for parameter in block.parameters)


def _compressed(model: Model, r: SglangResolved, stage: int) -> CompressedPools | None:
    span = engine_stages(r.settings).spans(model.num_layers)[stage]
    return compressed_pools(model, r.settings, r.version, span, r.max_num_seqs)
