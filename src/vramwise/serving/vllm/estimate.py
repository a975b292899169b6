"""`serve` with vLLM: the four budget lines of its log, the KV cache pool, limits and verdict."""

from __future__ import annotations

from functools import partial

from vramwise.hardware import Gpu
from vramwise.hardware.room import Room, room_of
from vramwise.intervals import around, stretched
from vramwise.models import Model
from vramwise.records import replace
from vramwise.result import Node, Phase, Quantity, Rank, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.scenario.definition import ServeSettings
from vramwise.serving.common.advice import Again, Trials, gpus_used, late_reasons
from vramwise.serving.common.answer import amount, assemble, card_notes, interval, peak_of, resolved
from vramwise.serving.common.storage import dtype_notes
from vramwise.serving.common.versions import version_notes
from vramwise.serving.vllm.activations import kept_bytes
from vramwise.serving.vllm.asleep import asleep
from vramwise.serving.vllm.budget import Budget, budgets_of, total_of
from vramwise.serving.vllm.graphs import FULL_GRAPHS_VERSION, estimates_graphs, printed_graphs
from vramwise.serving.vllm.limits import (
    check_given_cache,
    least_card,
    needed_of,
    pool_verdict,
    starts_with_short_requests,
)
from vramwise.serving.vllm.profile import (
    BOTH_ENGINES,
    DEFAULT_VERSION,
    HEADROOM_VERSION,
    asks_for_v0,
    is_old_card,
    profile_of,
)
from vramwise.serving.vllm.refusals import removed_format
from vramwise.serving.vllm.settings import Resolved, resolve_settings
from vramwise.units import GIB

# v1/engine/core.py _initialize_kv_caches: a model without caches is given no memory for them; encoders since 0.10.1
CACHELESS_VERSION = (0, 10, 1)


def estimate(scenario: Scenario, model: Model, source: str, gpu: Gpu | None, again: Again) -> Result:
    """vLLM's start-up accounting on the worst rank.

    kv = ceil(total · utilization) − weights − activation peak − non-torch (− context before 0.9, − CUDA graphs since
    0.20). Counted per version as its sources say (vllm/profile.py). Not counted: other processes on the card,
    connectors, prefix caches outside the GPU.
    """
    r = resolve_settings(scenario, model, gpu)
    budgets = budgets_of(model, r, gpu)
    budget = _fullest(budgets)
    check_given_cache(budget)
    room = room_of(scenario, gpu)
    quantities = _quantities(model, budget, gpu)
    verdict: Verdict | None = None
    kv_bytes, scarcest = budget.one_request, budget
    if room is not None:
        trials = Trials(scenario, r, model, again, gpu, room.usable_bytes)
        why = partial(late_reasons, trials=trials)
        verdict = pool_verdict(budget, room, why)
        if verdict.fits and len(budgets) > 1:
            scarcest = _scarcest(budgets, budget, room)
            verdict = replace(verdict, reasons=pool_verdict(scarcest, room, why).reasons)
        pool = pool_quantities(scarcest, *_totals(scenario, gpu, room))
        quantities.update(pool)
        if not verdict.fits and not starts_with_short_requests(budget, room):
            quantities |= dict.fromkeys(("max_batch", "max_seq"), Quantity.exact(0))
        quantities["oom"] = Quantity.exact(not verdict.fits)
        kv_bytes = max(0, int(pool["kv_cache_bytes"].expected))
    within = room.usable_bytes if room is not None and verdict is not None and verdict.fits else None
    stages = _stages(budgets, scarcest, kv_bytes, within)
    phases = max(stages, key=_most) if within is not None else stages[budgets.index(budget)]
    quantities["nvidia_smi"] = interval(phases[-1].components)
    if r.settings.sleep_level:
        phases = (*phases, asleep(budget))
        in_host = budget.weights.bytes if r.settings.sleep_level == 1 else 0
        quantities["host_memory"] = Quantity.exact(in_host * min(gpus_used(r.settings), scenario.gpus_per_node))
    quantities["total_needed"] = least_card(budget) if room is None else needed_of(budget, room)
    table = resolved(scenario, "serve", _stated(scenario.serve, r, model))
    quantization = r.storage.quantization.name if r.storage.quantization is not None else None
    notes = (
        *dtype_notes(model, scenario.serve.dtype),
        *card_notes(gpu, r.storage.dtype, quantization),
        *_notes(scenario, r, room),
        *_freed(budget, quantities["cuda_graph"]),
        *_overlooked(budget),
    )
    ranks = tuple(Rank(f"stage {n}", _most(one)) for n, one in enumerate(stages)) if len(stages) > 1 else None
    capacity = room.capacity if room is not None else None
    return assemble(table, model, source, quantities, phases, capacity, verdict, notes, ranks)


def needs(scenario: Scenario, model: Model, gpu: Gpu | None) -> tuple[Quantity, str]:
    """The smallest card with which it starts, and the moment at which the process holds most; of a server that is
    alone on its card, whose cache has no given size and which does not sleep."""
    budget = _fullest(budgets_of(model, resolve_settings(scenario, model, gpu), gpu))
    room = room_of(scenario, gpu)
    if room is None:
        return least_card(budget), peak_of(_phases(budget, budget.one_request, None)).name
    needed = least_card(budget, room.seen_bytes)
    within = room.usable_bytes if needed.expected <= room.usable_bytes else None
    return needed, peak_of(_phases(budget, _cache_bytes(budget, room.seen_bytes), within)).name


def _fullest(budgets: tuple[Budget, ...]) -> Budget:
    """The pipeline stage that leaves least to its cache."""
    return max(budgets, key=lambda stage: total_of(stage.charged) + stage.one_request)


def _scarcest(budgets: tuple[Budget, ...], fullest: Budget, room: Room) -> Budget:
    """The pipeline stage whose cache has the fewest blocks (of equals the fullest); every other has as many.

    It need not be the fullest: of layers with windows and without them a stage may have more of the latter.
    Source: vLLM 0.25.0 v1/core/kv_cache_utils.py get_kv_cache_configs.
    """

    def blocks(stage: Budget) -> int:
        return stage.pool.num_blocks(_cache_bytes(stage, room.seen_bytes, held=room.held_bytes))

    stages = (stage for stage in budgets if stage.pool.block_bytes)
    return min(stages, key=lambda stage: (blocks(stage), stage is not fullest), default=fullest)


def _stated(given: ServeSettings, r: Resolved, model: Model) -> ServeSettings:
    """The settings that an answer states: a version stays open whose rules are taken without its formats."""
    open_version = given.engine_version is None and removed_format(given, model) is not None
    return r.settings.replace(engine_version=None) if open_version else r.settings


def _quantities(model: Model, budget: Budget, gpu: Gpu | None) -> dict[str, Quantity]:
    r = budget.resolved
    estimated = {"cuda_graph_estimate": interval(budget.estimated_graphs)} if estimates_graphs(r) else {}
    graphs = {"cuda_graph": printed_graphs(model, r, budget.graphs), **estimated} if budget.graphs.bytes else {}
    weights, peak, generation = interval(budget.weights), _printed_peak(budget), r.profile.generation
    return {
        "params": Quantity.exact(model.num_parameters),
        "weights": around("weights", weights, _weights_cell(r), weights.expected),
        "activation_peak": around("activation_peak", peak, f"vLLM activation, {generation}", GIB),
        "non_torch": stretched("non_torch", interval(budget.non_torch), f"vLLM non-torch, {generation}", GIB / 50),
        "cuda_graph": Quantity.exact(0),
        **{name: stretched(name, one, _graphs_cell(r, name, gpu), GIB / 50) for name, one in graphs.items()},
    }


def _weights_cell(r: Resolved) -> str:
    """Of a quantized checkpoint its makers choose what stays in 16 bits; of any other the config tells everything."""
    is_quantized = r.storage.quantization is not None or r.settings.quantization is not None
    return f"vLLM weights, {'quantized' if is_quantized else '16 or 32 bit'}"


def _graphs_cell(r: Resolved, name: str, gpu: Gpu | None) -> str:
    """HIP's graphs take up to five times what CUDA's do, and on some cards as much."""
    if gpu is not None and gpu.vendor == "AMD":
        return "vLLM graphs, ROCm"
    if name == "cuda_graph_estimate":
        return "vLLM graphs, estimate"
    return f"vLLM graphs, {'since 0.11' if r.version >= FULL_GRAPHS_VERSION else 'before 0.11'}"


def _freed(budget: Budget, printed: Quantity) -> list[str]:
    """Why the counter of CUDA graphs is below what they hold, where it is nothing at all."""
    if printed.expected or not budget.graphs.bytes:
        return []
    kept = amount(budget.graphs.bytes)
    return [f"CUDA graphs hold {kept}; the log's figure is less what capture frees of the pool, and may be negative"]


def _overlooked(budget: Budget) -> list[str]:
    """Why the KV cache of an engine with a sleep mode is larger than its terms leave it."""
    if budget.uncharged is None or not budget.uncharged.bytes:
        return []
    more = amount(budget.uncharged.bytes)
    return [f"sleep mode leaves the KV cache {more} more: loading freed it, and this version takes it for torch's"]


def _printed_peak(budget: Budget) -> Quantity:
    """What is printed as peak activation: since HEADROOM_VERSION what was given back after it, with the graphs that the
    budget estimates."""
    r = budget.resolved
    ends = ("low", "bytes", "high")
    if r.version < HEADROOM_VERSION:
        return interval(budget.activation)
    terms = [budget.activation, budget.estimated_graphs] if r.profile.graphs_in_budget else [budget.activation]
    return Quantity(*(max(0, total_of(terms, end) - kept_bytes(budget.activation, end)) for end in ends))


def _totals(scenario: Scenario, gpu: Gpu | None, room: Room) -> tuple[int, int, int, int]:
    """Least, expected and most bytes that a card of this kind shows; one figure where the card's own is given. Then
    what others hold."""
    expected = room.seen_bytes
    if scenario.gpu_total_bytes is not None or gpu is None or gpu.usable is None:
        return expected, expected, expected, room.held_bytes
    return min(gpu.usable.low, expected), expected, max(gpu.usable.high, expected), room.held_bytes


def pool_quantities(budget: Budget, least: int, total: int, most: int, held: int = 0) -> dict[str, Quantity]:
    """Bytes, blocks, tokens and requests of the KV cache on a card of `total` bytes, which shows `least` to `most`, of
    which others hold some."""
    r, pool = budget.resolved, budget.pool
    # the fewest bytes are left when every term is at its high end
    ends = ((least, "high"), (total, "bytes"), (most, "low"))
    if not pool.block_bytes and r.version >= CACHELESS_VERSION:
        return {"kv_cache_bytes": Quantity.exact(0)}
    sizes = [_cache_bytes(budget, size, end, held) for size, end in ends]
    if r.settings.kv_cache_memory_bytes is None:
        found = stretched("kv_cache_bytes", Quantity(*sizes), "vLLM KV", budget.unsure_bytes)
        sizes = [int(found.low), int(found.expected), int(found.high)]
    if not pool.block_bytes:
        return {"kv_cache_bytes": Quantity(*sizes)}
    blocks = [pool.num_blocks(size) for size in sizes]
    held_at_once = [pool.max_concurrency(count, r.max_model_len, r.in_flight_tokens) for count in blocks]
    requests = [pool.printed_concurrency(count, r.max_model_len, r.in_flight_tokens) for count in blocks]
    tokens = [_tokens(budget, count, many) for count, many in zip(blocks, requests, strict=True)]
    return {
        "kv_cache_bytes": Quantity(*sizes),
        "kv_cache_blocks": Quantity(*blocks),
        "kv_cache_tokens": Quantity(*tokens),
        "max_concurrency": Quantity(*requests),
        "max_batch": Quantity(*(min(r.max_num_seqs, int(many)) for many in held_at_once)),
        "max_seq": Quantity(*(pool.longest_request(count, r.in_flight_tokens, r.max_model_len) for count in blocks)),
    }


def _cache_bytes(budget: Budget, total: int, end: str = "bytes", held: int = 0) -> int:
    """What the cache gets of a card; where the terms alone exceed the share, vLLM logs a negative size."""
    if not budget.pool.block_bytes and budget.resolved.version >= CACHELESS_VERSION:
        return 0
    return max(0, budget.available(total, budget.resolved.share, end, held))


def _tokens(budget: Budget, blocks: int, requests: float) -> int:
    """The printed "GPU KV cache size", whose meaning changed for models with several kinds of layers."""
    r, pool = budget.resolved, budget.pool
    if r.profile.tokens_are_concurrency and pool.num_groups > 1:
        return int(requests * r.max_model_len)
    return blocks // max(1, pool.num_groups) * pool.smallest_block * pool.decode_context_parallel


def _phases(budget: Budget, kv_bytes: int, room: int | None) -> tuple[Phase, ...]:
    """Load, profile run, graph capture, decode: what the process holds on the worst rank, in `room` where it fits.

    Decode runs in memory that the profile run left in PyTorch's pool, so it holds what graph capture ended with: all of
    it (logs of 0.9.2 and 0.10.2 with the process's memory), or what the card had left for it.
    """
    outside = [budget.context] + ([budget.nccl] if budget.nccl is not None else [])
    cache = Node(
        "KV cache", kv_bytes, "derived", formula="blocks × page × layers of a group",
        inputs={"page_bytes": budget.pool.page_bytes, "layers_of_a_group": budget.pool.group_size,
                "groups": budget.pool.num_groups},
        source="vLLM v1/core/kv_cache_utils.py",
    )  # fmt: skip
    # PyTorch keeps what the profile run took, so the process holds it until it ends
    reserved = budget.activation
    running = (budget.weights, cache, reserved, *budget.kept, budget.non_torch, *outside)
    captured = _within((*running, budget.graphs), reserved, room)
    return (
        Phase("load", Node.group("load", (budget.weights, *outside))),
        Phase(
            "profile run",
            Node.group("profile run", (budget.weights, reserved, *budget.kept, budget.non_torch, *outside)),
        ),
        Phase("graph capture", Node.group("graph capture", captured)),
        Phase("decode", Node.group("decode", _within((*running, budget.graphs, *budget.later), reserved, room))),
    )


def _within(terms: tuple[Node, ...], pool: Node, room: int | None) -> tuple[Node, ...]:
    """The terms with as much less in PyTorch's pool as they exceed the room by."""
    over = sum(term.bytes for term in terms) - (room or 0)
    if room is None or over <= 0 or over > pool.bytes:
        return terms
    left = pool.bytes - over
    kept = Node(
        pool.name, left, pool.kind, min(pool.low, left), max(left, pool.high - over),
        formula="what the card leaves of the profile run's", inputs={"profile_run_bytes": pool.bytes},
        source="torch.cuda.graph empties the pool before it captures",
    )  # fmt: skip
    return tuple(kept if term is pool else term for term in terms)


def _stages(budgets: tuple[Budget, ...], scarcest: Budget, kv_bytes: int, room: int | None) -> list[tuple[Phase, ...]]:
    """The moments of every pipeline stage; all have as many blocks as the one whose cache has `kv_bytes`.

    Source: vLLM 0.25.0 v1/core/kv_cache_utils.py get_kv_cache_configs; a stage that does not hold the head samples
    nothing while it is profiled (v1/worker/gpu_model_runner.py profile_run).
    """
    blocks = scarcest.pool.num_blocks(kv_bytes)
    return [
        _phases(budget, kv_bytes if budget is scarcest else blocks * budget.pool.block_bytes, room)
        for budget in budgets
    ]


def _most(phases: tuple[Phase, ...]) -> int:
    return max(phase.bytes for phase in phases)


def _notes(scenario: Scenario, r: Resolved, room: Room | None) -> tuple[str, ...]:
    notes = list(version_notes("vLLM", scenario.serve.engine_version, DEFAULT_VERSION))
    if scenario.serve.max_num_batched_tokens is None and r.profile.generation == "V1":
        whose = "LLM" if scenario.serve.offline_inference else "the API server"
        notes.append(f"max_num_batched_tokens is {whose}'s default")
    if scenario.gpu is None and scenario.serve.use_v1 is None and _hangs_on_the_card(r):
        notes.append(
            "no card is named: compute capability 8.0 or newer and so the V1 engine is assumed; this version takes V0 "
            "on older cards (--gpu, or --no-use-v1)"
        )
    by_itself = r.version >= BOTH_ENGINES[0] and not asks_for_v0(scenario.serve) and not is_old_card(r.capability)
    if by_itself and r.profile.generation == "V0":
        notes.append("this version of vLLM runs this on its V0 engine by itself")
    if room is None:
        notes.append("no GPU given: the KV cache stands for one request of max_model_len")
    return tuple(notes)


def _hangs_on_the_card(r: Resolved) -> bool:
    """Whether this version runs another engine on cards before compute capability 8.0."""
    return profile_of(r.version, True).generation != profile_of(r.version, False).generation == r.profile.generation
