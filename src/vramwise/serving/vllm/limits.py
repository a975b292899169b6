"""Whether vLLM starts: the smallest card on which its settings do, and what is short on a smaller one."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from vramwise.errors import ScenarioError
from vramwise.hardware.room import Room
from vramwise.intervals import around
from vramwise.result import Quantity, Verdict
from vramwise.serving.common.answer import amount
from vramwise.serving.vllm.budget import Budget, total_of
from vramwise.verdict import LateReasons, verdict_of

ENDS = ("low", "bytes", "high")
REQUEST_CHECKED = (0, 9, 1)
"""Since then the share must be free at the start (0.9.2 v1/worker/gpu_worker.py init_device, 0.20.0 and 0.33.0
v1/worker/utils.py request_memory); 0.9.0 does not look."""


def pool_verdict(budget: Budget, room: Room, why: Callable[[str], LateReasons]) -> Verdict:
    """Fits on a card of the least size that the settings need, and on any larger one, where others leave its share."""
    total = room.seen_bytes
    needed = needed_of(budget, room)
    if least_card(budget, total, room.held_bytes).expected > total:
        return verdict_of(needed, room.usable_bytes, why(_problem(budget, total, room.held_bytes)))
    if needed.expected > room.usable_bytes:
        return verdict_of(needed, room.usable_bytes, why(_refusal(budget, room)))
    spare = budget.available(total, budget.resolved.share, held=room.held_bytes) - budget.one_request
    return verdict_of(needed, room.usable_bytes, [_fits(budget, total, spare, room.held_bytes)])


def needed_of(budget: Budget, room: Room) -> Quantity:
    """What has to be usable: the least card, and of a card that others use too what the process takes of it."""
    total = room.seen_bytes
    least = least_card(budget, total, room.held_bytes)
    if room.usable_bytes == total:
        return least
    taken = _taken(budget, room)
    if least.expected <= total:
        return taken
    lacks = least.expected - total  # of the whole card, beside what it takes anyway
    ends = (max(room.usable_bytes, end) + lacks for end in (taken.low, taken.expected, taken.high))
    return Quantity(*ends)


def _taken(budget: Budget, room: Room) -> Quantity:
    """What the process takes of a card that others use too: its share whole, whatever is free, and what lies outside.

    The share must be free for a cache of a given size too (0.33.0 v1/worker/gpu_worker.py init_device). Where others
    are charged to the share (0.8 and 0.9.0) it takes as much less.
    """
    r = budget.resolved
    share = ceil(room.seen_bytes * r.share) - (room.held_bytes if r.profile.counts_context else 0)

    def all_of(end: str) -> int:
        outside = _outside(budget, end)
        if r.settings.kv_cache_memory_bytes is None and budget.pool.block_bytes:
            return share + outside
        own = total_of(budget.charged, end) + (r.settings.kv_cache_memory_bytes or 0) + outside
        return max(own, share + _before_load(budget)) if r.version >= REQUEST_CHECKED else own

    return Quantity(all_of("low"), all_of("bytes"), all_of("high"))


def starts_with_short_requests(budget: Budget, room: Room) -> bool:
    """Whether the share and what lies outside it leave room to start, however short requests are."""
    given = budget.resolved.settings.kv_cache_memory_bytes
    least = _beside_the_share(budget, "bytes", room.seen_bytes)
    if given is not None:
        least = total_of(budget.charged) + given + _outside(budget, "bytes")
    if least > room.seen_bytes:
        return False
    return room.usable_bytes == room.seen_bytes or _taken(budget, room).expected <= room.usable_bytes


def _before_load(budget: Budget) -> int:
    """What the process itself holds where it looks at what is free."""
    return budget.context.bytes + (budget.nccl.bytes if budget.nccl is not None else 0)


def _refusal(budget: Budget, room: Room) -> str:
    """Why it does not start, or what it takes, beside what is held and reserved."""
    r = budget.resolved
    requested = amount(ceil(room.seen_bytes * r.share))
    share = f"{requested} (gpu_memory_utilization {r.share:g} of {amount(room.seen_bytes)})"
    own = _before_load(budget)
    if r.version >= REQUEST_CHECKED and ceil(room.seen_bytes * r.share) > room.free_bytes - own:
        return f"vLLM refuses to start: of {share} only {amount(max(0, room.free_bytes - own))} are free at its start"
    if room.held_bytes and int(_taken(budget, room).expected) > room.free_bytes:
        return f"vLLM takes {share} whatever is free, and runs out of memory at {amount(room.free_bytes)}"
    left = room.free_bytes - int(_taken(budget, room).expected)
    return f"vLLM fills {share}: of {amount(room.reserve_bytes)} that must stay free {amount(max(0, left))} are left"


def least_card(budget: Budget, total: int | None = None, held: int = 0) -> Quantity:
    """Smallest card whose share holds one request of max_model_len and which holds graphs and context beside the share.

    share = (charged + one request) / utilization; beside it, where a pool fills the share up: outside / (1 − share).
    `held` by others is charged too where everything outside torch's pool is.
    A share of the whole card leaves no card anything for what lies outside: then it is what is taken of a card of
    `total` bytes. How far pools lay from their estimates says how far what is charged does, not what lies outside.
    """
    r = budget.resolved
    given = r.settings.kv_cache_memory_bytes
    theirs = held if r.profile.counts_context else 0

    def asked(end: str) -> int:
        charged, outside = total_of(budget.charged, end), _outside(budget, end)
        if given is not None:
            return charged + given + outside
        own = charged + budget.one_request
        return max(ceil((own + theirs) / r.share), own + outside)

    needed = around("total_needed", Quantity(*map(asked, ENDS)), "vLLM need", budget.unsure_bytes)
    if given is not None:
        return needed
    beside = (_beside_the_share(budget, end, total) for end in ENDS)
    return Quantity(*map(max, (needed.low, needed.expected, needed.high), beside))


def _beside_the_share(budget: Budget, end: str, total: int | None) -> int:
    """Least card beside whose share, which a pool fills up, there is room for what lies outside it; 0 without a pool,
    and where the whole card is its share and no card's `total` is known."""
    share, outside = budget.resolved.share, _outside(budget, end)
    if not budget.pool.block_bytes:
        return 0
    if share < 1:
        return ceil(outside / (1 - share))
    return 0 if total is None else total + outside


def _outside(budget: Budget, end: str) -> int:
    """Context, NCCL and what of the graphs nobody's share holds."""
    r = budget.resolved
    outside: int = getattr(budget.context, end) if not r.profile.counts_context else 0
    if budget.nccl is not None:
        outside += getattr(budget.nccl, end)
    held: int = getattr(budget.estimated_graphs, end) if r.profile.graphs_in_budget else 0
    # capture empties PyTorch's pool of the profile run, so only what exceeds that needs more memory
    graphs: int = getattr(budget.graphs, end)
    return outside + max(0, graphs - held - budget.activation.bytes)


def _fits(budget: Budget, total: int, spare: int, held: int) -> str:
    r = budget.resolved
    if not budget.pool.block_bytes:
        return f"the model keeps no KV cache; {amount(spare)} of its share are left"
    blocks = budget.pool.num_blocks(budget.available(total, r.share, held=held))
    many = budget.pool.max_concurrency(blocks, r.max_model_len, r.in_flight_tokens)
    return (
        f"the KV cache of {amount(spare + budget.one_request)} holds {many:,.2f} requests of {r.max_model_len:,} tokens"
    )


def _problem(budget: Budget, total: int, held: int) -> str:
    """What is short, in the engine's own terms."""
    r = budget.resolved
    requested = ceil(total * r.share)
    left = budget.available(total, r.share, held=held)
    given = r.settings.kv_cache_memory_bytes
    if given is not None:
        lack = least_card(budget, total).expected - total
        return f"kv_cache_memory_bytes {amount(given)} and all else lack {amount(lack)} on {amount(total)}"
    share = f"{amount(requested)} (gpu_memory_utilization {r.share:g} of {amount(total)})"
    taken = f"weights, profile run and the rest take {amount(total_of(budget.charged))} of {share}"
    if budget.weights.bytes > requested:
        return f"weights of {amount(budget.weights.bytes)} do not fit in {share}"
    if left < budget.pool.block_bytes:
        return f"no KV cache blocks: {taken}"
    if left < budget.one_request:
        need = amount(budget.one_request)
        return f"max_model_len {r.max_model_len:,} needs {need} of KV cache, {amount(left)} is left"
    if left < 0:
        return taken
    return f"what lies outside it, {amount(_outside(budget, 'bytes'))}, does not fit beside {share}"


def check_given_cache(budget: Budget) -> None:
    """Raises ScenarioError for a cache of a given size that holds no request of max_model_len, on no card.

    Source: vLLM 0.25.0 v1/core/kv_cache_utils.py _check_enough_kv_cache_memory.
    """
    r = budget.resolved
    given = r.settings.kv_cache_memory_bytes
    if given is None or given >= budget.one_request:
        return
    longest = budget.pool.longest_request(budget.pool.num_blocks(given), r.in_flight_tokens, r.max_model_len)
    shorter = f", or max_model_len to {longest:,}" if longest else ""
    raise ScenarioError(
        "serve.kv_cache_memory_bytes",
        f"{amount(given)} hold no request of max_model_len {r.max_model_len:,}, vLLM refuses it: "
        f"set it to {budget.one_request}{shorter}",
    )
