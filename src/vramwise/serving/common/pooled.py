"""What engines with a pool of KV cache tokens share: quantities, moments and verdict around their own budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from vramwise.hardware import Gpu
from vramwise.hardware.room import capacity_of
from vramwise.intervals import around
from vramwise.models import Model
from vramwise.records import record
from vramwise.result import Capacity, Node, Phase, Quantity, Rank, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.serving.common.advice import Again, Trials, late_reasons
from vramwise.serving.common.answer import amount, assemble, interval, resolved
from vramwise.serving.common.resolved import ResolvedServe
from vramwise.verdict import LateReasons, verdict_of


@record
class PooledBudget:
    """One engine's terms on the worst rank.

    `cell_bytes`: a token's cache over all layers; `fixed_bytes`: what a sequence takes whatever its length.
    `share`: the engine's own share of the card as it is named in its settings. `least_card`: the smallest card whose
    share holds `least_pool`, where it is more than the sum of the terms. `states`: a pool of recurrent states beside
    the tokens' (then `fixed_bytes` lie there). `length_follows`: the engine lowers the length of a request to what
    the pool holds, so that one block is enough. `most_pool`: the pool is no larger than that, whatever the card.
    `request_pools`: pools in the engine's share that do not grow with the tokens.
    """

    weights: Node
    working: tuple[Node, ...]
    graphs: Node
    context: Node
    cell_bytes: int
    fixed_bytes: int
    block_size: int
    max_model_len: int
    max_num_seqs: int
    share_name: str
    share: float
    least_card: Quantity | None = None
    states: Node | None = None
    length_follows: bool = False
    most_pool: int | None = None
    request_pools: Node | None = None

    @property
    def one_request(self) -> int:
        """Bytes that one request of max_model_len takes in the pool."""
        blocks = -(-self.max_model_len // self.block_size)
        return blocks * self.block_size * self.cell_bytes + (self.fixed_bytes if self.states is None else 0)

    def following(self, pool_bytes: int) -> PooledBudget:
        """The same with requests no longer than a pool of so many bytes holds, in whole blocks."""
        if not self.cell_bytes:
            return self
        left = pool_bytes - (self.fixed_bytes if self.states is None else 0)
        tokens = max(0, left) // self.cell_bytes // self.block_size * self.block_size
        longest = min(tokens, self.max_model_len) if tokens else self.max_model_len
        return replace(self, max_model_len=longest, length_follows=True)

    @property
    def least_pool(self) -> int:
        """Bytes of tokens with which the engine starts: those of one request, or one block where the length follows."""
        return self.block_size * self.cell_bytes if self.length_follows else self.one_request

    def beside(self, end: str = "bytes") -> int:
        """Bytes of everything but the pools, expected or at the `low` or `high` ends."""
        terms = (self.weights, *self.working, self.graphs, self.context)
        return sum(int(getattr(term, end)) for term in terms)

    @property
    def needed(self) -> Quantity:
        """The smallest card on which the engine starts."""
        pools = self.least_pool + (self.fixed_bytes if self.states is not None else 0)
        pools += self.request_pools.bytes if self.request_pools is not None else 0
        ends = [self.beside(end) + pools for end in ("low", "bytes", "high")]
        least = self.least_card
        if least is not None:
            ends = [max(a, int(b)) for a, b in zip(ends, (least.low, least.expected, least.high), strict=True)]
        return Quantity(*ends)

    @property
    def state_pool(self) -> tuple[Node, ...]:
        """Pools of recurrent states and others that do not grow with the tokens, where the engine keeps them apart."""
        return tuple(pool for pool in (self.states, self.request_pools) if pool is not None)


def pooled_result(
    scenario: Scenario, r: ResolvedServe, model: Model, source: str, gpu: Gpu | None, again: Again,
    budget: PooledBudget, available: Quantity | None, notes: Iterable[str], stages: Sequence[PooledBudget] = (),
) -> Result:  # fmt: skip
    """The answer of an engine whose pool got `available` bytes (None without a card), for settings with nothing left
    open. A length that follows the pool stays open in the scenario that the answer states: asked for, it would be a
    condition. `stages`: the budgets of all pipeline stages, of which `budget` is the fullest one's."""
    capacity = capacity_of(scenario, gpu)
    quantities = {
        "params": Quantity.exact(model.num_parameters),
        "weights": interval(budget.weights),
        "activation_peak": Quantity.exact(sum(term.bytes for term in budget.working)),
        "cuda_graph": interval(budget.graphs),
    }
    verdict: Verdict | None = None
    held = budget.one_request
    if capacity is not None and available is not None:
        quantities.update(_pool(budget, available))
        trials = Trials(scenario, r, model, again, gpu, capacity.usable_bytes)
        verdict = _verdict(budget, capacity, int(available.expected), partial(late_reasons, trials=trials))
        quantities["oom"] = Quantity.exact(not verdict.fits)
        held = max(0, int(available.expected))
    phases = _phases(budget, held)
    quantities["nvidia_smi"] = interval(phases[-1].components)
    quantities["total_needed"] = budget.needed
    ranks = _ranks(budget, held, stages, phases[-1].bytes) if len(stages) > 1 else None
    stated = r.settings.replace(max_model_len=scenario.serve.max_model_len) if budget.length_follows else r.settings
    table = resolved(scenario, "serve", stated)
    return assemble(table, model, source, quantities, phases, capacity, verdict, notes, ranks)


def fullest(stages: Sequence[PooledBudget]) -> PooledBudget:
    """The pipeline stage whose pool holds the fewest tokens: all others get as many as it does."""
    return max(stages, key=lambda stage: stage.weights.bytes + stage.one_request)


def _ranks(budget: PooledBudget, pool_bytes: int, stages: Sequence[PooledBudget], peak: int) -> tuple[Rank, ...]:
    """What every pipeline stage holds when all have the tokens of the fullest one, whose budget and peak these are."""
    tokens = pool_bytes // budget.cell_bytes if budget.cell_bytes else 0
    states = budget.states.bytes if budget.states is not None else 0
    most = fullest(stages)
    ranks = []
    for index, stage in enumerate(stages):
        own = states * stage.fixed_bytes // budget.fixed_bytes if states else 0
        own += stage.request_pools.bytes if stage.request_pools is not None else 0
        held = peak if stage is most else stage.beside() + tokens * stage.cell_bytes + own
        ranks.append(Rank(f"stage {index}", held))
    return tuple(ranks)


def _pool(budget: PooledBudget, available: Quantity) -> dict[str, Quantity]:
    available = Quantity(*(max(0, int(size)) for size in (available.low, available.expected, available.high)))
    available = around("kv_cache_bytes", available, "pooled KV", available.expected)
    sizes = [int(size) for size in (available.low, available.expected, available.high)]
    if not budget.cell_bytes:
        return {"kv_cache_bytes": Quantity(*sizes)}
    tokens = [size // budget.cell_bytes // budget.block_size * budget.block_size for size in sizes]
    requests = [size / budget.one_request for size in sizes]
    return {
        "kv_cache_bytes": Quantity(
            *(min(size, count * budget.cell_bytes) for size, count in zip(sizes, tokens, strict=True))
        ),
        "kv_cache_tokens": Quantity(*tokens),
        "kv_cache_blocks": Quantity(*(count // budget.block_size for count in tokens)),
        "max_concurrency": Quantity(*requests),
        "max_batch": Quantity(*(min(budget.max_num_seqs, int(many)) for many in requests)),
        "max_seq": Quantity(*(min(budget.max_model_len, count) for count in tokens)),
    }


def _phases(budget: PooledBudget, pool_bytes: int) -> tuple[Phase, ...]:
    pool = Node(
        "KV cache", pool_bytes, "derived", formula="tokens × bytes a token",
        inputs={"bytes_per_token": budget.cell_bytes, "block_size": budget.block_size}, source="cache of every layer",
    )  # fmt: skip
    running = (budget.weights, pool, *budget.state_pool, *budget.working, budget.context)
    return (
        Phase("load", Node.group("load", (budget.weights, budget.context))),
        Phase("prefill", Node.group("prefill", running)),
        Phase("decode", Node.group("decode", (*running, budget.graphs))),
    )


def _verdict(
    budget: PooledBudget, capacity: Capacity, left: int, why: Callable[[str], LateReasons]
) -> Verdict:  # fmt: skip
    """Fits when the pool, which got `left` bytes, holds one request and what runs finds room beside the pool."""
    total, needed = capacity.usable_bytes, budget.needed
    if needed.expected <= total:
        many = left / budget.one_request if budget.one_request else 0.0
        said = f"the KV cache of {amount(left)} holds {many:,.2f} requests of {budget.max_model_len:,} tokens"
        return verdict_of(needed, total, [said])
    return verdict_of(needed, total, why(_problem(budget, total, left)))


def _problem(budget: PooledBudget, total: int, left: int) -> str:
    """What is short, in the engine's own terms."""
    share = f"{budget.share_name} {budget.share:g} of {amount(total)}"
    beside = total - budget.beside() - sum(node.bytes for node in budget.state_pool) - max(0, left)
    if budget.weights.bytes + budget.context.bytes > total:
        return f"weights of {amount(budget.weights.bytes)} do not fit in {amount(total)}"
    if left < budget.cell_bytes * budget.block_size:
        return f"no room for the KV cache: the weights use up {share}"
    if left < budget.one_request:
        need = amount(budget.one_request)
        return f"max_model_len {budget.max_model_len:,} needs {need} of KV cache, {amount(left)} is left"
    if beside >= 0:
        return f"all that one request takes needs {amount(budget.needed.expected)} of {amount(total)}"
    return f"activations and CUDA graphs lack {amount(-beside)} beside {share}"
