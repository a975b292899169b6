"""Whether vLLM starts: the smallest card on which its settings do, and what is short on a smaller one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil

from vramwise.errors import ScenarioError
from vramwise.result import Capacity, Quantity, Verdict
from vramwise.serving.common.answer import amount
from vramwise.serving.vllm.budget import Budget, total_of
from vramwise.verdict import LateReasons, verdict_of


def pool_verdict(budget: Budget, capacity: Capacity, advice: Callable[[], Iterable[str]]) -> Verdict:
    """Fits on a card of the least size that the settings need, and on any larger one."""
    total = capacity.usable_bytes
    needed = least_card(budget, total)
    if needed.expected <= total:
        spare = budget.available(total, budget.resolved.share) - budget.one_request
        return verdict_of(needed, total, [_fits(budget, capacity, spare)])
    return verdict_of(needed, total, LateReasons([_problem(budget, total)], advice))


def least_card(budget: Budget, total: int | None = None) -> Quantity:
    """Smallest card whose share holds one request of max_model_len and which holds graphs and context beside the share.

    share = (charged + one request) / utilization; beside it, where a pool fills the share up: outside / (1 − share).
    A share of the whole card leaves no card anything for what lies outside: then it is what is taken of a card of
    `total` bytes.
    """
    r = budget.resolved
    given = r.settings.kv_cache_memory_bytes

    def least(end: str) -> int:
        charged, outside = total_of(budget.charged, end), _outside(budget, end)
        if given is not None:
            return charged + given + outside
        held = charged + budget.one_request
        cards = [ceil(held / r.share), held + outside]
        if budget.pool.block_bytes and r.share < 1:
            cards.append(ceil(outside / (1 - r.share)))
        elif budget.pool.block_bytes and total is not None:
            cards.append(total + outside)
        return max(cards)

    return Quantity(least("low"), least("bytes"), least("high"))


def _outside(budget: Budget, end: str) -> int:
    """Context, NCCL and graphs where nobody's share holds them."""
    r = budget.resolved
    outside = int(getattr(budget.context, end)) if not r.profile.counts_context else 0
    if budget.nccl is not None:
        outside += int(getattr(budget.nccl, end))
    if not r.profile.graphs_in_budget:
        # capture empties PyTorch's pool of the profile run, so only what exceeds that needs more memory
        outside += max(0, int(getattr(budget.graphs, end)) - budget.activation.bytes)
    return outside


def _fits(budget: Budget, capacity: Capacity, spare: int) -> str:
    r = budget.resolved
    if not budget.pool.block_bytes:
        return f"the model keeps no KV cache; {amount(spare)} of its share are left"
    blocks = budget.pool.num_blocks(budget.available(capacity.usable_bytes, r.share))
    many = budget.pool.max_concurrency(blocks, r.max_model_len, r.in_flight_tokens)
    return (
        f"the KV cache of {amount(spare + budget.one_request)} holds {many:.2f} requests of {r.max_model_len:,} tokens"
    )


def _problem(budget: Budget, total: int) -> str:
    """What is short, in the engine's own terms."""
    r = budget.resolved
    requested = ceil(total * r.share)
    left = budget.available(total, r.share)
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
