"""`serve` with text-generation-inference: a warm-up prefill, then blocks from what it leaves free.

Read in the tags v0.9.4 to v3.3.7: server/text_generation_server/models/flash_causal_lm.py warmup, models/globals.py
(TGI_WIGGLE_ROOM, BLOCK_SIZE), utils/import_utils.py get_cuda_free_memory, launcher/src/main.rs (defaults).
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from vramwise.engines.tgi import RECORD
from vramwise.hardware import Gpu
from vramwise.hardware.room import room_of
from vramwise.models import Model
from vramwise.models.lengths import model_length, text_config
from vramwise.models.parallel_cut import ParallelCut
from vramwise.records import record
from vramwise.result import Node, Quantity, Result
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.adapters import adapted_sizes, adapters_asked
from vramwise.serving.common.advice import Again
from vramwise.serving.common.answer import card_notes, context_node
from vramwise.serving.common.constants import constant, gib_node
from vramwise.serving.common.kv_cache import CacheDtypes, model_specs, sequence_bytes
from vramwise.serving.common.layouts import capability_of, engine_weights, server_storage
from vramwise.serving.common.pooled import PooledBudget, pooled_result
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.serving.common.storage import dtype_notes
from vramwise.serving.common.versions import version_notes, version_of
from vramwise.serving.tgi.warmup import warm_up

DEFAULT_VERSION = RECORD.newest
DEFAULT_FRACTION = 1.0  # --cuda-memory-fraction
DEFAULT_PREFILL_TOKENS = 4096
DEFAULT_REQUESTS = 128  # --max-concurrent-requests
V1_TOTAL_TOKENS = 2048  # --max-total-tokens up to 1.4
V2_LONGEST, V2_PREFILL_MARGIN = 4096, 50  # 2.x: min(positions, 4096), prefill = input + 50
FLASHINFER_HEADS = frozenset({64, 128, 256})
PAGED_BLOCK, FLASHINFER_BLOCK, FLASH_DECODING_BLOCK = 16, 1, 256
LEAST_OPTIMAL = 100
LIBRARIES_VERSIONS = (2,), (3,)
LAUNCHER_WIGGLE = 0.95  # its own guess of the room for a prefill, whatever the server keeps
TERA = 10**12

# version from which the wiggle room holds, and whether it is a share of the card (else of what is free)
_WIGGLE: tuple[tuple[tuple[int, ...], float, bool], ...] = (
    ((0,), 1.0, False), ((1, 4, 1), 0.95, False), ((2, 4), 0.90, False),
    ((3,), 0.95, True), ((3, 1), 0.93, True), ((3, 3), 0.90, True),
)  # fmt: skip
# fp16 TFLOPS by which 3.x chooses the tokens of a prefill (launcher/src/main.rs f16_flop)
_TFLOPS = {
    "rtx-4090": 82, "t4": 65, "l4": 121, "l40": 181, "l40s": 363, "a10g": 125, "a40": 149, "a100": 312, "h100": 900,
    "h200": 989,
}  # fmt: skip


@record
class Share:
    """What of a card the blocks may use: `wiggle` of the whole card (3.x) or of what the warm-up left free."""

    fraction: float
    wiggle: float
    of_card: bool

    def pool(self, total: int, taken: int, batch: int) -> int:
        """Bytes of all blocks. `taken`: context, weights and prefill; `batch`: the cache of the warm-up itself.

        3.x: fraction · wiggle · total − taken. Before: wiggle · (fraction · total − taken − batch) + batch.
        """
        if self.of_card:
            return int(self.fraction * self.wiggle * total) - taken
        return int(self.wiggle * (self.fraction * total - taken - batch)) + batch

    def least_card(self, taken: int, batch: int, request: int) -> int:
        """The smallest card whose blocks hold `request` bytes: `pool` solved for the total."""
        if self.of_card:
            return ceil((taken + request) / (self.fraction * self.wiggle))
        return ceil(((request - batch) / self.wiggle + taken + batch) / self.fraction)


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    """pool = what `Share.pool` leaves of the card beside context, weights and the warm-up prefill."""
    r = resolve(scenario.serve, model, gpu)
    budget = _budget(model, r, gpu)
    share, batch = _share(r), r.batched_tokens * budget.cell_bytes
    room = room_of(scenario, gpu)
    available = None
    if room is not None:
        terms = (budget.weights, *budget.working, budget.context)
        taken = (sum(t.high for t in terms), sum(t.bytes for t in terms), sum(t.low for t in terms))
        available = Quantity(*(share.pool(room.seen_bytes, size + room.held_bytes, batch) for size in taken))
        if scenario.serve.max_model_len is None and _chunks(r):
            # the server itself lowers max_total_tokens to what its blocks hold
            budget = budget.following(int(available.expected))
            r = r.limited_to(budget.max_model_len)
    least = (share.least_card(budget.beside(end), batch, budget.least_pool) for end in ("low", "bytes", "high"))
    budget = replace(budget, least_card=Quantity(*least))
    notes = (
        *version_notes(RECORD.title, scenario.serve.engine_version, DEFAULT_VERSION),
        *dtype_notes(model, scenario.serve.dtype),
        *card_notes(gpu, r.storage.dtype, r.settings.quantization),
    )
    return pooled_result(scenario, r, model, source, gpu, again, budget, available, notes)


def _chunks(r: ResolvedServe) -> bool:
    """Prefills in chunks (3.x with FlashInfer or flash decoding): lengths then follow the blocks."""
    return r.version >= (3,) and r.block_size != PAGED_BLOCK


def _share(r: ResolvedServe) -> Share:
    wiggle, of_card = next((w, card) for start, w, card in reversed(_WIGGLE) if r.version >= start)
    return Share(r.share, wiggle, of_card)


def resolve(given: ServeSettings, model: Model, gpu: Gpu | None) -> ResolvedServe:
    """Defaults of the launcher, by version and from 3.0 on by what the card computes and holds."""
    storage = server_storage(model, given, gpu)
    text = given.engine_version or DEFAULT_VERSION
    version, share = version_of(text), given.gpu_memory_utilization or DEFAULT_FRACTION
    positions = model_length(model)
    if version < (2,):
        length, prefill = V1_TOTAL_TOKENS, DEFAULT_PREFILL_TOKENS
    elif version < (3,):
        length = min(positions, V2_LONGEST)
        prefill = length - 1 + V2_PREFILL_MARGIN
    else:
        length = positions
        prefill = min(_launcher_prefill(model, gpu, given, share), positions)
    length = given.max_model_len or length
    tokens, seqs = given.max_num_batched_tokens or prefill, given.max_num_seqs or DEFAULT_REQUESTS
    block = given.block_size or _block_size(model, version, capability_of(gpu))
    settings = given.replace(
        engine_version=text, dtype=storage.dtype, max_model_len=length, max_num_seqs=seqs,
        max_num_batched_tokens=tokens, gpu_memory_utilization=share, block_size=block,
    )  # fmt: skip
    return ResolvedServe(
        settings=settings, version=version, storage=storage, max_model_len=length, batched_tokens=tokens,
        max_num_seqs=seqs, block_size=block, share=share,
    )  # fmt: skip


def _launcher_prefill(model: Model, gpu: Gpu | None, given: ServeSettings, share: float) -> int:
    """3.x: the fewer of the tokens that keep the cards busy for a second and those that their memory takes.

    FLOPs of a token = layers · hidden · (2 · head size · (3 · heads + 2 · kv heads) + 6 · intermediate · experts used);
    bytes of a token = layers · 4 · kv heads · head size + 9 · intermediate · experts; both as the launcher counts them.
    4,096 without a figure of the card, for models that see, and where the first is 100 or less.
    """
    config = text_config(model)
    names = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers")
    if gpu is None or "vision" in model.parts or not all(config.has(name) for name in names):
        return DEFAULT_PREFILL_TOKENS
    rate = max((t for name, t in _TFLOPS.items() if f"{gpu.id}-".startswith(f"{name}-")), default=0)
    heads, hidden, layers = (config.size(name) for name in ("num_attention_heads", "hidden_size", "num_hidden_layers"))
    inner, experts = config.size("intermediate_size"), config.size("num_local_experts", default=1)
    head_dim = config.size("head_dim", default=hidden // heads)
    kv_heads = config.size("num_key_value_heads", default=heads)
    used = config.size("num_experts_per_tok", default=1) + config.size("n_shared_experts", default=0)
    flops = layers * hidden * (2 * head_dim * (3 * heads + 2 * kv_heads) + 6 * inner * used)
    busy = rate * TERA * given.tensor_parallel_size // flops
    tokens = busy if busy > LEAST_OPTIMAL else DEFAULT_PREFILL_TOKENS
    if not rate or given.quantization or gpu.memory_total_bytes is None:
        return tokens
    weights = 2 * (
        layers * (3 * inner * experts * hidden + (heads + 2 * kv_heads) * head_dim + heads * head_dim * hidden)
        + 2 * hidden * model.logit_width
    )
    room = int(gpu.memory_total_bytes * given.tensor_parallel_size * share * LAUNCHER_WIGGLE) - weights
    return min(tokens, room // (layers * 4 * kv_heads * head_dim + 9 * inner * experts)) if room > 0 else tokens


def _block_size(model: Model, version: tuple[int, ...], capability: float | None) -> int:
    """16 with paged attention; since 2.3, on cards from 8.0 on, 1 with FlashInfer or 256 with flash decoding."""
    if version < (2, 3) or (capability is not None and capability < 8.0):
        return PAGED_BLOCK
    widths = {cache.key_head_dim for cache in model.caches if cache.kind != "none"}
    return FLASHINFER_BLOCK if widths and widths <= FLASHINFER_HEADS else FLASH_DECODING_BLOCK


def _weights(model: Model, r: ResolvedServe) -> Node:
    """The weights and the adapters beside them, which are loaded before the warm-up.

    Every rank has its part of A and of B; the rank of both is filled up (server/text_generation_server/adapters/lora.py
    3.3.7; punica_sgmv pad_rank: 8 for each shard, above that a multiple of 16).
    """
    weights = engine_weights(model, r.settings, r.storage)
    held, rank = adapters_asked(r.settings)
    if not held:
        return weights
    shards = r.settings.tensor_parallel_size
    filled = 8 * shards if rank <= 8 * shards else -(-rank // 16) * 16
    whole, targets = ParallelCut(), r.settings.lora_targets
    elements = sum(size * filled for block in model.layers() for _, size in adapted_sizes(block, whole, targets))
    size = held * elements // shards * r.storage.bytes_per_element
    adapters = Node(
        "adapters", size, "derived", size, size, formula="adapters × rank × Σ (in + out) × dtype / shards",
        inputs={"max_loras": held, "max_lora_rank": rank},
        source="text-generation-inference 3.3.7 adapters/lora.py prepare_weights",
    )  # fmt: skip
    return Node.group("weights", (*weights.children, adapters))


def _libraries(r: ResolvedServe) -> tuple[Node, ...]:
    """What the process holds beside torch's pool and the context, where a log shows it."""
    first, last = LIBRARIES_VERSIONS
    if not first <= r.version < last:
        return ()
    return (gib_node("libraries", constant("tgi", "libraries", r.version), {}),)


def _budget(model: Model, r: ResolvedServe, gpu: Gpu | None) -> PooledBudget:
    own, ranks = r.storage.bytes_per_element, r.settings.tensor_parallel_size
    specs = model_specs(model, ranks, CacheDtypes(r.cache_element_bytes, own, own), False)
    token, state = sequence_bytes(specs)
    share = _share(r)
    return PooledBudget(
        weights=_weights(model, r),
        working=(warm_up(model, r, capability_of(gpu)), *_libraries(r)),
        graphs=Node("CUDA graphs", 0, "assumed", formula="inside what the share leaves", source="not split in any log"),
        context=context_node(gpu),
        cell_bytes=token,
        fixed_bytes=state,
        block_size=r.block_size,
        max_model_len=r.max_model_len,
        max_num_seqs=r.max_num_seqs,
        share_name="cuda_memory_fraction × TGI_WIGGLE_ROOM",
        share=share.fraction * share.wiggle,
    )
