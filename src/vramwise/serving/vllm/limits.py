"""Whether vLLM starts, and the smallest change that makes it start."""

from __future__ import annotations

from math import ceil

from vramwise.hardware import Gpu
from vramwise.models import Model
from vramwise.result import Capacity, Quantity, Verdict
from vramwise.serving.answer import amount
from vramwise.serving.heads import attention_heads
from vramwise.serving.vllm.budget import Budget, total_of, with_tensor_parallel
from vramwise.verdict import verdict_of

HIGHEST_UTILIZATION = 0.97  # above it, context and graphs hardly ever find room
MOST_RANKS = 8


def pool_verdict(model: Model, budget: Budget, capacity: Capacity, gpu: Gpu | None) -> Verdict:
    """Fits on a card of the least size that the settings need, and on any larger one."""
    total, needed = capacity.usable_bytes, least_card(budget)
    starts = not _is_refused_on_any_card(budget)
    if needed.expected <= total and starts:
        spare = budget.available(total, budget.resolved.utilization) - budget.one_request
        return verdict_of(needed, total, [_fits(budget, capacity, spare)])
    return verdict_of(needed, total, _problems(model, budget, capacity, gpu), runs=starts)


def least_card(budget: Budget) -> Quantity:
    """Smallest card whose share holds one request of max_model_len and which holds graphs and context beside the share.

    share = (charged + one request) / utilization; beside it, where a pool fills the share up: outside / (1 − share).
    """
    r = budget.resolved
    given = r.settings.kv_cache_memory_bytes

    def least(end: str) -> int:
        charged, outside = total_of(budget.charged, end), _outside(budget, end)
        if given is not None:
            return charged + given + outside
        held = charged + budget.one_request
        cards = [ceil(held / r.utilization), held + outside]
        if budget.pool.block_bytes and r.utilization < 1:
            cards.append(ceil(outside / (1 - r.utilization)))
        return max(cards)

    return Quantity(least("low"), least("bytes"), least("high"))


def _is_refused_on_any_card(budget: Budget) -> bool:
    """A cache of a given size below one request, or a share that leaves nothing for what lies outside it."""
    r = budget.resolved
    given = r.settings.kv_cache_memory_bytes
    if given is not None:
        return given < budget.one_request
    return r.utilization >= 1 and bool(budget.pool.block_bytes) and _outside(budget, "bytes") > 0


def _outside(budget: Budget, end: str) -> int:
    """Context, NCCL and graphs where nobody's share holds them."""
    r = budget.resolved
    outside = int(getattr(budget.context, end)) if not r.profile.counts_context else 0
    if budget.nccl is not None:
        outside += int(getattr(budget.nccl, end))
    if not r.profile.graphs_in_budget:
        # graphs reuse what the allocator keeps of the profile run; only what exceeds it needs new memory
        outside += max(0, int(getattr(budget.graphs, end)) - budget.activation.bytes)
    return outside


def _room_beside(budget: Budget, total: int) -> int:
    """What is left of the card once the share and what lies outside it are taken."""
    r = budget.resolved
    share = min(round(total * r.utilization), total)
    given = r.settings.kv_cache_memory_bytes
    if given is not None or not budget.pool.block_bytes:  # nothing fills the share up then
        share = total_of(budget.charged) + (given or 0)
    return total - share - _outside(budget, "bytes")


def _fits(budget: Budget, capacity: Capacity, spare: int) -> str:
    r = budget.resolved
    if not budget.pool.block_bytes:
        return f"the model keeps no KV cache; {amount(spare)} of its share are left"
    blocks = budget.pool.num_blocks(budget.available(capacity.usable_bytes, r.utilization))
    many = budget.pool.max_concurrency(blocks, r.max_model_len, r.in_flight_tokens)
    return (
        f"the KV cache of {amount(spare + budget.one_request)} holds {many:.2f} requests of {r.max_model_len:,} tokens"
    )


def _problems(model: Model, budget: Budget, capacity: Capacity, gpu: Gpu | None) -> list[str]:
    r, total = budget.resolved, capacity.usable_bytes
    requested = round(total * r.utilization)
    left = budget.available(total, r.utilization)
    blocks = budget.pool.num_blocks(max(0, left))
    share = f"{amount(requested)} (gpu_memory_utilization {r.utilization:g} of {amount(total)})"
    if budget.weights.bytes > requested:
        return [f"weights of {amount(budget.weights.bytes)} do not fit in {share}", *_fixes(model, budget, total, gpu)]
    if left < budget.pool.block_bytes:
        charged = sum(term.bytes for term in budget.charged)
        return [
            f"no KV cache blocks: weights, profile run and the rest take {amount(charged)} of {share}",
            *_fixes(model, budget, total, gpu),
        ]
    if left < budget.one_request and r.settings.kv_cache_memory_bytes is not None:
        return _given_cache_problems(budget, left, blocks)
    if left < budget.one_request:
        longest = budget.pool.longest_request(blocks, r.in_flight_tokens, r.max_model_len)
        reasons = [
            f"max_model_len {r.max_model_len:,} needs {amount(budget.one_request)} of KV cache, {amount(left)} is left"
        ]
        if longest:
            reasons.append(f"set max_model_len to {longest:,}")
        return [*reasons, *_fixes(model, budget, total, gpu)]
    if r.settings.kv_cache_memory_bytes is not None:
        return _too_large_cache(budget, total, left)
    lower = (total - (requested - _room_beside(budget, total))) / total
    return [
        f"CUDA context and graphs do not fit beside {share}",
        f"set gpu_memory_utilization to {max(0.01, int(lower * 100) / 100):g} or enforce_eager",
    ]


def _given_cache_problems(budget: Budget, left: int, blocks: int) -> list[str]:
    """A cache of a given size that does not hold one request."""
    r = budget.resolved
    longest = budget.pool.longest_request(blocks, r.in_flight_tokens, r.max_model_len)
    reasons = [
        f"max_model_len {r.max_model_len:,} needs {amount(budget.one_request)} of KV cache, "
        f"kv_cache_memory_bytes gives {amount(left)}"
    ]
    if longest:
        reasons.append(f"set max_model_len to {longest:,}")
    return [*reasons, f"set kv_cache_memory_bytes to {budget.one_request}"]


def _too_large_cache(budget: Budget, total: int, given: int) -> list[str]:
    """A cache of a given size that the card does not hold beside all else."""
    r, most = budget.resolved, given + _room_beside(budget, total)
    reasons = [f"kv_cache_memory_bytes {amount(given)} and all else lack {amount(given - most)} on {amount(total)}"]
    blocks = budget.pool.num_blocks(max(0, most))
    longest = budget.pool.longest_request(blocks, r.in_flight_tokens, r.max_model_len)
    if not longest:
        return [*reasons, "quantize the weights, take a larger GPU, or more of them"]
    reasons.append(f"set kv_cache_memory_bytes to {most}")
    if longest < r.max_model_len:
        reasons.append(f"and max_model_len to {longest:,}")
    return reasons


def _fixes(model: Model, budget: Budget, total: int, gpu: Gpu | None) -> list[str]:
    """The least utilization, number of sequences or GPUs with which one request fits."""
    r = budget.resolved
    charged = sum(term.bytes for term in budget.charged) + budget.one_request
    fixes = []
    wanted = -(-charged * 100 // total) / 100
    if wanted <= HIGHEST_UTILIZATION and wanted > r.utilization:
        fixes.append(f"set gpu_memory_utilization to {wanted:g}")
    ranks = r.settings.tensor_parallel_size
    while ranks < MOST_RANKS and not fixes:
        ranks *= 2
        if attention_heads(model) % ranks:
            continue
        other = with_tensor_parallel(model, budget, gpu, ranks)
        if other.available(total, r.utilization) >= other.one_request:
            fixes.append(f"set tensor_parallel_size to {ranks}")
    if not fixes:
        fixes.append("quantize the weights, take a larger GPU, or more of them")
    return fixes
