"""Serving with prefill and decode on servers of their own: how many of each a load takes, and what moves between them.

    prefill   requests/s · prompt tokens          over what a server reads a second (matrix rate)
    decode    requests/s · tokens of a reply      over what a server writes a second with its cache full (bandwidth)
    transfer  a prompt's keys and values          from one to the other, over the network unless all stand in one node

Ceilings are those of `vramwise mfu`. What of them is reached is an interval: servers are counted by its low end. Both
kinds are full estimates. Requests come evenly and nobody waits in line: how long they do is for a simulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from vramwise.engines import engine_named
from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import estimate, model_of
from vramwise.hardware import Gpu, find_gpu
from vramwise.models import Model
from vramwise.models.lengths import model_length
from vramwise.planner.ceiling import cache_bytes, weights_read
from vramwise.planner.changes import changed
from vramwise.planner.combinations import Seen
from vramwise.planner.inventory import Pool
from vramwise.planner.machine import machine_keys, machine_of
from vramwise.planner.model_sizes import sizes_of
from vramwise.planner.over_gpus import own_pool
from vramwise.planner.running import POOLED
from vramwise.planner.ways import Way
from vramwise.records import record, replace
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.scenario.words import command_line
from vramwise.training.speed.links import links_of
from vramwise.training.speed.rates import rates_of
from vramwise.units import format_bytes
from vramwise.utilization.conventions import inference_flops_per_token
from vramwise.utilization.roofline import decode_bound, prefill_bound, published_band
from vramwise.utilization.throughput import TERA

PREFILL, DECODE = "prefill", "decode"
_RANKS = (1, 2, 4, 8, 16)
_TOO_LARGE = "does not fit"


@record
class Traffic:
    """Requests that come in a second, tokens of a prompt and of a reply."""

    requests_per_second: float
    input_tokens: int
    output_tokens: int

    def to_dict(self) -> dict[str, object]:
        return {
            "requests_per_second": self.requests_per_second, "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }  # fmt: skip


@record
class Servers:
    """Servers of one role: a full estimate of one of them, how many, and what one does.

    `tokens_per_s`: the least and the most of one server, prompts' tokens or replies'. `requests_at_once`: in its cache.
    """

    role: str
    scenario: Scenario
    result: Result
    replicas: int
    tokens_per_s: tuple[float, float]
    requests_at_once: int
    price_per_hour: float | None = None

    @property
    def is_sure(self) -> bool:
        return self.result.verdict is not None and self.result.verdict.word == "fits"

    @property
    def num_gpus(self) -> int:
        """Cards of all of them."""
        return self.replicas * self.scenario.num_gpus

    @property
    def cost_per_hour(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.num_gpus

    @property
    def command(self) -> str:
        return command_line(self.scenario)

    def to_dict(self) -> dict[str, object]:
        return {
            "role": self.role, "scenario": self.result.scenario, "replicas": self.replicas, "num_gpus": self.num_gpus,
            "total_needed": self.result.needed.to_dict(), "tokens_per_s": list(self.tokens_per_s),
            "requests_at_once": self.requests_at_once, "cost_per_hour": self.cost_per_hour, "command": self.command,
        }  # fmt: skip


@record
class Transfer:
    """A prompt's cache on its way: `link_bytes_per_s` is what one transfer gets; `network_share`: of what the servers'
    nodes have together, where it goes over the network."""

    bytes: int
    seconds: float
    link: str
    link_bytes_per_s: float
    network_share: float | None

    def to_dict(self) -> dict[str, object]:
        return {
            "bytes": self.bytes, "seconds": self.seconds, "link": self.link,
            "link_bytes_per_s": self.link_bytes_per_s, "network_share": self.network_share,
        }  # fmt: skip


@record
class Apart:
    """Both kinds of servers for a load; None of them where `binding` says what stands in the way."""

    traffic: Traffic
    searched: int
    prefill: Servers | None
    decode: Servers | None
    transfer: Transfer | None
    binding: str = ""

    @property
    def first_token_s(self) -> tuple[float, float] | None:
        """The least and the most without waiting: the prompt is read and moved."""
        if self.prefill is None or self.transfer is None:
            return None
        slow, fast = self.prefill.tokens_per_s
        moved = self.transfer.seconds
        return self.traffic.input_tokens / fast + moved, self.traffic.input_tokens / slow + moved

    @property
    def token_s(self) -> tuple[float, float] | None:
        """Of a reply with the cache full of others."""
        if self.decode is None:
            return None
        slow, fast = self.decode.tokens_per_s
        return self.decode.requests_at_once / fast, self.decode.requests_at_once / slow

    def to_dict(self) -> dict[str, object]:
        first, each = self.first_token_s, self.token_s
        return {
            "traffic": self.traffic.to_dict(),
            "prefill": None if self.prefill is None else self.prefill.to_dict(),
            "decode": None if self.decode is None else self.decode.to_dict(),
            "transfer": None if self.transfer is None else self.transfer.to_dict(),
            "first_token_s": None if first is None else list(first),
            "token_s": None if each is None else list(each),
        }


def apart(
    scenario: Scenario, traffic: Traffic, pools: Sequence[Pool] = (), risk: float | None = None,
    price_per_hour: float | None = None, seen: Seen = lambda number: None,
) -> Apart:  # fmt: skip
    """The fewest (with prices, the cheapest) servers of both kinds that carry the traffic, sure ones before tight ones.

    `risk`: only servers that run out of memory with a chance below that. `price_per_hour`: of a card without its own.

    Raises UsageError for an engine without a pool of cache tokens and for a card whose rates are not known, and what
    the estimate of the scenario raises.
    """
    _refuse_what_has_no_pool(scenario)
    model = model_of(scenario)[1]
    if not model.caches:
        raise UsageError(f"{scenario.model} writes no text token by token: there is nothing to decode")
    whole, longest = traffic.input_tokens + traffic.output_tokens, model_length(model)
    if whole > longest:
        raise UsageError(f"prompt and reply are {whole:,} tokens, and {scenario.model} has positions for {longest:,}")
    there = list(pools) or own_pool(scenario)
    if not there:
        raise UsageError("no card to plan for: give --gpu CARD, or --inventory FILE with those there are")
    every: dict[str, list[tuple[Servers, Pool]]] = {PREFILL: [], DECODE: []}
    misses: list[str] = []
    searched = 0
    for pool, ranks, role in product(there, _ranks_of(scenario), every):
        if ranks > min(pool.per_node, pool.count):
            continue
        searched += 1
        seen(searched)
        found = _servers(_on(scenario, pool, ranks, role, traffic), model, role, traffic, pool)
        if isinstance(found, Servers):
            verdict = found.result.verdict
            if risk is not None and (verdict is None or verdict.probability < 1 - risk):
                misses.append(f"{role} on {ranks} × {find_gpu(pool.gpu).gpu.name}: fits only tightly")
                continue
            found = replace(found, price_per_hour=pool.price_per_hour or price_per_hour)
            every[role].append((found, pool))
        else:
            misses.append(f"{role} on {ranks} × {find_gpu(pool.gpu).gpu.name}: {found}")
    pairs = sorted(product(every[PREFILL], every[DECODE]), key=lambda pair: _cost([one for one, _ in pair]))
    for one, other in pairs:
        if _are_there((one, other)):
            return Apart(traffic, searched, one[0], other[0], _transfer(one, other, traffic))
    if pairs:
        few = min(sum(one.num_gpus for one, _ in pair) for pair in pairs)
        most = sum(pool.count for pool in there)
        return Apart(traffic, searched, None, None, None, f"it takes {few:,} cards, more than the {most:,} there are")
    short = [miss for miss in misses if _TOO_LARGE in miss] or misses[:1] or ["no server fits into a node"]
    return Apart(traffic, searched, None, None, None, short[-1])


def _refuse_what_has_no_pool(scenario: Scenario) -> None:
    engine = engine_named(scenario.serve.engine)
    if scenario.task != "serve" or engine.memory_share is None or engine.reads_gguf:
        raise UsageError(f"prefill and decode apart need an engine with a pool of cache tokens, {POOLED} or sglang")
    if scenario.serve.pipeline_parallel_size * scenario.serve.data_parallel_size > 1 or scenario.gpus:
        raise UsageError("prefill and decode apart are planned over ranks of tensor parallelism on equal cards alone")


def _ranks_of(scenario: Scenario) -> tuple[int, ...]:
    """Ranks of a server: those that were asked for, else all that a node may have."""
    own = scenario.serve.tensor_parallel_size
    return (own,) if "tensor_parallel_size" in scenario.serve.explicit else _RANKS


def _on(scenario: Scenario, pool: Pool, ranks: int, role: str, traffic: Traffic) -> Scenario:
    """One server of a role, with the longest length that it sees."""
    length = traffic.input_tokens + (1 if role == PREFILL else traffic.output_tokens)
    asked = scenario.serve.max_model_len if "max_model_len" in scenario.serve.explicit else None
    if asked is not None and asked < traffic.input_tokens + traffic.output_tokens:
        raise UsageError(
            f"--max-model-len {asked:,} is shorter than prompt and reply, {traffic.input_tokens:,} + "
            f"{traffic.output_tokens:,} tokens"
        )
    values: dict[str, object] = {"gpu": pool.gpu, "num_gpus": ranks, "gpus_per_node": pool.per_node}
    if pool.network_gbit_s is not None:
        values["network_gbit_s"] = pool.network_gbit_s
    return changed(scenario, values | {"tensor_parallel_size": ranks, "max_model_len": asked or length})


def _servers(scenario: Scenario, model: Model, role: str, traffic: Traffic, pool: Pool) -> Servers | str:
    """How many of such a server it takes, or why none holds one request."""
    try:
        result = estimate(scenario)
    except VramwiseError as problem:
        return str(problem)
    verdict, many = result.verdict, result.quantities.get("max_concurrency")
    if verdict is None or not verdict.fits or many is None or many.expected < 1:
        room = "" if result.capacity is None else f", room {format_bytes(result.capacity.usable_bytes)}"
        return f"{_TOO_LARGE}: needs {format_bytes(int(result.needed.expected))}{room}"
    table = result.scenario["serve"]
    held = min(int(many.expected), int(table.get("max_num_seqs") or many.expected))
    gpu = find_gpu(pool.gpu).gpu
    if role == PREFILL:
        tokens, (slow, fast) = traffic.input_tokens, _read_per_second(scenario, model, gpu, traffic)
    else:
        tokens, (slow, fast) = traffic.output_tokens, _written_per_second(scenario, model, gpu, traffic, result, held)
    replicas = max(1, math.ceil(traffic.requests_per_second * tokens / slow))
    return Servers(role, scenario, result, replicas, (slow, fast), held)


def _read_per_second(scenario: Scenario, model: Model, gpu: Gpu, traffic: Traffic) -> tuple[float, float]:
    """Tokens of prompts: from what published prefills reach of the matrix rate to what products of training reach.

    The published one over several cards is a pipeline over PCIe and says nothing of ranks.
    """
    peak, reached = _rates(gpu), published_band(PREFILL, 1)
    assert reached is not None
    bound = prefill_bound(sizes_of(model, traffic.input_tokens), traffic.input_tokens, peak, scenario.num_gpus)
    most = rates_of(gpu, "bf16").product_flops / (peak * TERA)
    return bound.tokens_per_s * min(reached[0], most), bound.tokens_per_s * max(reached[0], most)


def _written_per_second(
    scenario: Scenario, model: Model, gpu: Gpu, traffic: Traffic, result: Result, held: int
) -> tuple[float, float]:
    """Tokens of replies with the cache full, each request's half written."""
    way = _way(scenario, result)
    mean = (traffic.input_tokens + traffic.output_tokens / 2) / (traffic.input_tokens + traffic.output_tokens)
    cache = round(cache_bytes(way) * mean)
    per_token = inference_flops_per_token(sizes_of(model, traffic.input_tokens), traffic.input_tokens)
    bandwidth = gpu.bandwidth_gb_s
    reached = published_band(DECODE, scenario.num_gpus)
    assert bandwidth is not None
    assert reached is not None
    weights = weights_read(model, way, every_expert=held > 1)
    bound = decode_bound(weights, cache, bandwidth, scenario.num_gpus, held, per_token, _rates(gpu))
    return bound.tokens_per_s * reached[0], bound.tokens_per_s * reached[1]


def _rates(gpu: Gpu) -> float:
    peak = gpu.dense_tflops("bf16") or gpu.dense_tflops("fp16")
    if peak is None or gpu.bandwidth_gb_s is None:
        raise UsageError(f"{gpu.name}: its matrix rate and bandwidth are not known, so no load can be planned for it")
    return peak


def _way(scenario: Scenario, result: Result) -> Way:
    machine = machine_of(**{key: getattr(scenario, key) for key in machine_keys() & scenario.explicit})
    return Way("serve", POOLED, "", {}, machine, result)


def _cost(pair: Sequence[Servers]) -> tuple[int, float, int]:
    """Tight ones last; money where all cards have a price, else cards; smaller servers first where that is equal."""
    cards = float(sum(one.num_gpus for one in pair))
    prices = [one.cost_per_hour for one in pair]
    known = [price for price in prices if price is not None]
    cost = sum(known) if len(known) == len(prices) else cards
    return sum(not one.is_sure for one in pair), cost, sum(one.scenario.num_gpus for one in pair)


def _are_there(pair: Sequence[tuple[Servers, Pool]]) -> bool:
    taken: dict[int, int] = {}
    for servers, pool in pair:
        taken[id(pool)] = taken.get(id(pool), 0) + servers.num_gpus
    return all(taken[id(pool)] <= pool.count for _, pool in pair)


def _transfer(one: tuple[Servers, Pool], other: tuple[Servers, Pool], traffic: Traffic) -> Transfer:
    """A prompt's whole blocks: between cards of one node, else over the share of a node's network that the smaller
    server's cards have."""
    (prefill, pool), (decode, beside) = one, other
    nbytes = _prompt_bytes(prefill, traffic)
    links = links_of(find_gpu(pool.gpu).gpu, pool.per_node, pool.network_gbit_s)
    cards = min(prefill.scenario.num_gpus, decode.scenario.num_gpus)
    if pool is beside and prefill.num_gpus + decode.num_gpus <= pool.per_node:
        each = links.within * cards
        return Transfer(nbytes, nbytes / each, "within a node", each, None)
    there = links_of(find_gpu(beside.gpu).gpu, beside.per_node, beside.network_gbit_s)
    each = min(links.across / pool.per_node, there.across / beside.per_node) * cards
    carried = min(links.across / pool.per_node * prefill.num_gpus, there.across / beside.per_node * decode.num_gpus)
    used = traffic.requests_per_second * nbytes / carried
    return Transfer(nbytes, nbytes / each, "network", each, used)


def _prompt_bytes(prefill: Servers, traffic: Traffic) -> int:
    """Keys and values of a prompt on all ranks, in whole blocks: of a server whose requests are prompts alone."""
    of_prompts = changed(prefill.scenario, {"max_model_len": traffic.input_tokens})
    return cache_bytes(_way(of_prompts, estimate(of_prompts)))
