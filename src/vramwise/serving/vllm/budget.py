"""vLLM's budget: what is charged against total · utilization, and what is left for the KV cache."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Any

from vramwise.hardware import Gpu
from vramwise.intervals import hypotenuse
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Node
from vramwise.serving.common.adapters import adapted_elements
from vramwise.serving.common.answer import context_node
from vramwise.serving.common.constants import constant, gib_node, learned_bytes
from vramwise.serving.common.kv_cache import (
    MLA_ROW_ALIGNMENT,
    CacheDtypes,
    PoolPlan,
    engine_caches,
    layer_specs,
    plan_pool,
)
from vramwise.serving.common.layouts import engine_layout, engine_stages
from vramwise.serving.common.packed_heads import OUTER_LAYERS, is_packed, keeps_outer_layers
from vramwise.serving.vllm.activations import activation_peak
from vramwise.serving.vllm.communication import FUSED_VERSION, has_multicast, joined_by_multicast, joined_ranks
from vramwise.serving.vllm.compressed import compressed_pool
from vramwise.serving.vllm.drafts import draft_caches, draft_weights, drafted_tokens
from vramwise.serving.vllm.graphs import HOPPER, estimated_node, graphs_node, profiles_attention, workspace_node
from vramwise.serving.vllm.pooling import pools
from vramwise.serving.vllm.profile import HEADROOM_VERSION, STATE_BLOCKS_VERSION, SUMS_FULL_LAYERS
from vramwise.serving.vllm.sampler import sampler_state
from vramwise.serving.vllm.settings import Resolved
from vramwise.serving.vllm.sleep_mode import freed_in_its_pool
from vramwise.serving.vllm.states import state_element_bytes
from vramwise.serving.vllm.weights import vllm_weights
from vramwise.units import GIB

_MEASURED_RANKS = (1, 2, 4, 8)
SPLIT_TERMS_VERSION = (0, 6, 5)
SHARE_UNSURE, LEAST_UNSURE_BYTES = 0.3, GIB // 20
# utils/mem_utils.py MemorySnapshot: what is free is what the system has, on Orin, Thor and Spark from 0.11.1 and on all
# of CUDA's integrated cards in 0.20.0 to 0.33.0; not in 0.11.0 (nor on AMD's)
SYSTEM_MEMORY_VERSION = (0, 11, 1)
NCCL_COUNTED = ((0, 9), (0, 11))  # V1's first snapshots still come before NCCL


@record
class Budget:
    """The terms of one rank, of one pipeline stage, and how its KV cache is laid out.

    `charged`: terms that are subtracted from total · utilization, apart from the weights. `later`: what the budget
    leaves out because it is made after it. `estimated_graphs`: what the engine expects of the graphs. `uncharged`: what
    it charges too little.
    """

    weights: Node
    activation: Node
    non_torch: Node
    graphs: Node
    estimated_graphs: Node
    context: Node
    nccl: Node | None
    sampler: Node | None
    later: tuple[Node, ...]
    pool: PoolPlan
    resolved: Resolved
    uncharged: Node | None = None

    @property
    def kept(self) -> tuple[Node, ...]:
        """What the sampler keeps, where it keeps anything."""
        return (self.sampler,) if self.sampler is not None else ()

    @property
    def charged(self) -> tuple[Node, ...]:
        terms = [self.weights, self.activation]
        if self.resolved.profile.counts_non_torch:
            terms.append(self.non_torch)
        if self.resolved.version >= HEADROOM_VERSION:
            terms.extend(self.kept)
        if self.resolved.profile.counts_context:
            terms.append(self.context)
        if self.resolved.profile.graphs_in_budget:
            terms.append(self.estimated_graphs)
        return tuple(terms)

    def available(self, total: int, utilization: float, end: str = "bytes", held: int = 0) -> int:
        """Bytes for the KV cache: total · utilization − Σ charged; `end` takes the low or high ends of the terms.

        `held`: what other programs hold of the card. Where all outside torch's pool is charged, theirs is too (0.8.5
        and 0.9.0 v1/worker/gpu_worker.py: total less free less torch's own).
        """
        given = self.resolved.settings.kv_cache_memory_bytes
        if given is not None:
            return given
        theirs = held if self.resolved.profile.counts_context else 0
        return ceil(total * utilization) - total_of(self.charged, end) + self._uncharged(end) - theirs

    def _uncharged(self, end: str) -> int:
        opposite = {"low": "high", "high": "low"}.get(end, end)
        return 0 if self.uncharged is None else total_of((self.uncharged,), opposite)

    @property
    def unsure_bytes(self) -> Any:
        """A size that errors of the charged terms grow with: a third of them without the weights, which are known."""
        terms = sum(term.bytes for term in self.charged if term is not self.weights)
        return hypotenuse(SHARE_UNSURE * terms, LEAST_UNSURE_BYTES)

    @property
    def one_request(self) -> int:
        """Bytes that the pool needs for one request of max_model_len."""
        r = self.resolved
        if not self.pool.block_bytes:
            return 0
        return self.pool.blocks_per_request(r.max_model_len, r.in_flight_tokens) * self.pool.block_bytes


def total_of(terms: Iterable[Node], end: str = "bytes") -> int:
    """Sum of the terms' expected bytes, or of their `low` or `high` ends."""
    return sum(map(attrgetter(end), terms))


def budgets_of(model: Model, r: Resolved, gpu: Gpu | None) -> tuple[Budget, ...]:
    """All terms for resolved settings, of every pipeline stage."""
    return tuple(_budget(model, r, gpu, stage) for stage in range(r.settings.pipeline_parallel_size))


def _budget(model: Model, r: Resolved, gpu: Gpu | None, stage: int) -> Budget:
    graphs = graphs_node(model, r, gpu)
    return Budget(
        weights=_weights(model, r.limited_to(1), stage),  # which hang on no length
        activation=activation_peak(model, r, embeds=stage == 0, samples=stage == r.settings.pipeline_parallel_size - 1),
        non_torch=_non_torch(model, r, gpu),
        graphs=graphs,
        estimated_graphs=estimated_node(model, r, gpu, graphs),
        context=context_node(gpu),
        nccl=_nccl(r),
        sampler=sampler_state(model, r),
        later=_later(model, r),
        pool=_pool(model, r, stage),
        resolved=r,
        uncharged=freed_in_its_pool(model, r, stage),
    )


# -- weights ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _weights(model: Model, r: Resolved, stage: int) -> Node:
    weights = vllm_weights(model, r.settings, r.storage, r.capability, stage, r.gfx)
    extra = [node for node in (_lora(model, r, stage), draft_weights(model, r)) if node is not None]
    return Node.group("weights", (*weights.children, *extra)) if extra else weights


def _lora(model: Model, r: Resolved, stage: int) -> Node | None:
    """Slots for adapters of a stage's linear layers: those of the weights that one rank has (lora/layers).

    A of a layer cut by outputs is whole, and so is B of one cut by inputs, as without `fully_sharded_loras`; both are
    where the layer is whole, and keys and values have B for the heads of the rank.
    """
    slots = r.settings.max_loras
    if not slots:
        return None
    rank = r.settings.max_lora_rank or 16
    stages = engine_stages(r.settings).spans(model.num_layers)
    first, end = stages[stage]
    cut = engine_layout(r.settings).cut
    elements = sum(adapted_elements(block, cut, rank) for block in list(model.layers())[first:end])
    head = rank * model.logit_width if stage == len(stages) - 1 and not pools(model, r.settings) else 0
    size = slots * (elements + head) * r.storage.bytes_per_element
    rest = constant("vllm", "lora_slot_overhead", r.version)
    return Node(
        "LoRA slots", size + round(rest.expected * GIB), "assumed", size, size + round(rest.high * GIB),
        formula="slots × rank × Σ (in + out) × dtype", inputs={"max_loras": slots, "max_lora_rank": rank},
        source="vLLM lora/layers create_lora_weights",
    )  # fmt: skip


# -- what is outside torch -------------------------------------------------------------------------------------


def _non_torch(model: Model, r: Resolved, gpu: Gpu | None) -> Node:
    """What lies outside torch's pool: little, however many cards there are, but for those that NVLink's switches and
    multicast join (from compute capability 9.0 on), up to 0.8 for all with NVLink, and for AMD's."""
    ranks = joined_ranks(model, r)
    if ranks > 1 and gpu is not None and gpu.is_linked and r.version >= FUSED_VERSION and has_multicast(r):
        return joined_by_multicast(model, r, gpu)
    measured = max(size for size in _MEASURED_RANKS if size <= ranks)
    name = f"non_torch_tp{measured}"
    split = gpu is not None and r.version >= SPLIT_TERMS_VERSION
    if ranks == 1 and split and r.capability is not None and r.capability < HOPPER:
        name = "non_torch_tp1_older"
    if ranks == 1 and _counts_the_system(gpu, r):
        name = "non_torch_unified"
    if ranks > 1 and split and gpu is not None:
        newer = r.profile.generation == "V1" and r.version >= NCCL_COUNTED[0]
        multicast = gpu.is_linked and r.capability is not None and r.capability >= HOPPER
        if not gpu.is_linked or (newer and not multicast):
            name = "non_torch_unlinked"
        elif newer and r.version < NCCL_COUNTED[1]:
            name = f"non_torch_linked_tp{measured}"
    if r.on_rocm:
        name = "non_torch_rocm"
    shipped = constant("vllm", name, r.version)
    here = learned_bytes(
        "non_torch", shipped, gpu, "vllm", r.settings.engine_version, ranks * r.settings.pipeline_parallel_size
    )  # fmt: skip
    return gib_node("non-torch", shipped, {"tensor_parallel_size": ranks}, here)


def _counts_the_system(gpu: Gpu | None, r: Resolved) -> bool:
    """Whether the card shares the host's memory, and the version takes what the whole system has as free."""
    shared = gpu is not None and gpu.unified_memory and gpu.vendor == "NVIDIA"
    return shared and r.version >= SYSTEM_MEMORY_VERSION


def _nccl(r: Resolved) -> Node | None:
    """NCCL where it starts before the first snapshot: nobody's budget holds it."""
    if r.profile.nccl_in_budget or r.settings.tensor_parallel_size * r.settings.pipeline_parallel_size == 1:
        return None
    return gib_node("NCCL", constant("vllm", "nccl_outside_budget", r.version), {})


def _later(model: Model, r: Resolved) -> tuple[Node, ...]:
    """FlashInfer's work space where the profiled graphs have no attention in them: the first request makes it."""
    if not r.profile.graphs_in_budget or r.settings.enforce_eager or profiles_attention(model, r):
        return ()
    workspace = workspace_node(model, r)
    return (workspace,) if workspace.bytes else ()


# -- KV cache --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _pool(model: Model, r: Resolved, stage: int) -> PoolPlan:
    """The pool that the caches of the stage's layers share on one rank."""
    settings, profile = r.settings, r.profile
    compressed = compressed_pool(model, r.version, r.block_size)
    if compressed is not None:
        return compressed
    start, stop = engine_stages(settings).spans(model.num_layers)[stage]
    layers = model.layer_caches[start:stop]
    caches = list(engine_caches(model, (cache for held in layers for cache in held), drafted_tokens(r)))
    caches.extend(draft_caches(model, r, caches))
    hybrid = profile.hybrid and profile.generation == "V1" and not settings.disable_hybrid_kv_cache_manager
    specs = layer_specs(caches, settings.tensor_parallel_size, _dtypes(model, r), windows=hybrid)
    if keeps_outer_layers(settings.kv_cache_dtype) and all(spec.kind == "full" for spec in specs):
        own = layer_specs(caches, settings.tensor_parallel_size, _own_dtypes(model, r), windows=hybrid)
        inner = range(OUTER_LAYERS, model.num_layers - OUTER_LAYERS)
        whose = [number for number, held in enumerate(layers, start) for _ in held]  # a draft's come behind
        packed = [at >= len(whose) or whose[at] in inner for at in range(len(specs))]
        specs = tuple(spec if held else own[at] for at, (spec, held) in enumerate(zip(specs, packed, strict=True)))
    return plan_pool(
        specs,
        r.block_size,
        hybrid=hybrid or any(spec.kind == "recurrent" for spec in specs),
        largest_group_ratio=profile.largest_group_ratio,
        decode_context_parallel=settings.decode_context_parallel_size,
        state_pages=_state_pages(r),
        sums_full=r.version >= SUMS_FULL_LAYERS,
    )


def _state_pages(r: Resolved) -> int:
    """Pages of a request's state: one, one more where prefixes are cached (mode `align`), one for each drafted token.

    Source: vLLM v1/kv_cache_interface.py MambaSpec of 0.20 to 0.33. Mode `all` of Mamba 2 models up to 0.29 is taken as
    `align`; checkpoints within a prefill (0.30 on) are not counted.
    """
    if r.version < STATE_BLOCKS_VERSION:
        return 1
    return 1 + (1 if r.settings.enable_prefix_caching else 0) + drafted_tokens(r)


def _own_dtypes(model: Model, r: Resolved) -> CacheDtypes:
    return replace(_dtypes(model, r), cache_bytes=r.storage.bytes_per_element, packed="")


def _dtypes(model: Model, r: Resolved) -> CacheDtypes:
    own = r.storage.bytes_per_element
    return CacheDtypes(
        r.cache_element_bytes,
        packed=r.settings.kv_cache_dtype if is_packed(r.settings.kv_cache_dtype) else "",
        conv_bytes=own,
        state_bytes=state_element_bytes(model, r.settings.mamba_ssm_cache_dtype, r.version) or own,
        latent_row_alignment=MLA_ROW_ALIGNMENT if r.profile.generation == "V0" else 1,
    )
