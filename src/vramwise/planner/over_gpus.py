"""How many of which GPUs a training takes, and how it is best laid out over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.frameworks import framework_of
from vramwise.hardware import find_gpu
from vramwise.models.model import Model
from vramwise.planner.changes import changed
from vramwise.planner.combinations import Reached, Seen
from vramwise.planner.inventory import Pool
from vramwise.planner.layouts import layouts
from vramwise.planner.option import RECOMPUTE, Option, Wishes, words_of
from vramwise.result import Result
from vramwise.scenario import Scenario

_MICRO_BATCHES = (1, 2, 4, 8, 16, 32)
_MOST_CARDS = 4096
_COUNTS_WITH_A_FIT = 2  # of cards: the fewest that are enough, and twice as many
_COUNTS_OF_A_FRONT = 4
_BEST_OF_A_COUNT = 3
_LAYOUT = (
    "tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "expert_parallel_size", "zero_stage",
    "fsdp",
)  # fmt: skip

_ON_THE_HOST = ("host_memory", "weights_host", "host_buffer")

answer: Callable[[Scenario], Result] = partial(estimate, replays=False)


def cards_of(scenario: Scenario) -> str:
    """`8 × H100 SXM5 80GB`."""
    return f"{scenario.num_gpus:,} × {find_gpu(scenario.gpu or '').gpu.name}"


def is_there(found: Reached, pool: Pool) -> bool:
    """Whether the pool has as many cards, and its hosts as much memory, as a scenario takes."""
    return found.scenario.num_gpus <= pool.count and _host_holds(found.result, pool)


def _host_holds(result: Result, pool: Pool) -> bool:
    """Whether the memory of a node holds what does not lie on its cards."""
    kept = sum(result.quantities[name].expected for name in _ON_THE_HOST if name in result.quantities)
    return pool.host_ram_bytes is None or kept <= pool.host_ram_bytes


def own_pool(scenario: Scenario) -> list[Pool]:
    """The scenario's own cards, as many as it takes where their number is not stated."""
    if scenario.gpu is None:
        return []
    many = scenario.num_gpus if "num_gpus" in scenario.explicit else _MOST_CARDS
    return [Pool(scenario.gpu, many, scenario.gpus_per_node, None, None, scenario.network_gbit_s)]


def on_pool(scenario: Scenario, pool: Pool, num_gpus: int | None = None) -> Scenario:
    """The scenario on cards of a pool."""
    network = pool.network_gbit_s or scenario.network_gbit_s
    changes: dict[str, object] = {"gpu": pool.gpu, "gpus_per_node": pool.per_node, "network_gbit_s": network}
    if num_gpus is not None:
        changes["num_gpus"] = num_gpus
    return scenario.replace(**{key: value for key, value in changes.items() if getattr(scenario, key) != value})


def _counts(scenario: Scenario, pool: Pool, wishes: Wishes) -> Iterator[int]:
    """Numbers of cards: the one that is stated or kept, else doubling up to what there is."""
    if "num_gpus" in scenario.explicit | wishes.keep:
        if scenario.num_gpus <= pool.count:
            yield scenario.num_gpus
        return
    number = 1
    while number < pool.count:
        yield number
        number *= 2
    yield pool.count


def laid_out(
    scenario: Scenario, model: Model, pool: Pool, wishes: Wishes, seen: Seen
) -> Iterator[Option]:  # fmt: skip
    """The fastest layouts on the fewest cards of a pool that are enough, and on the next number of them."""
    with_a_fit, whole = 0, wishes.rank == "front"
    most = _COUNTS_OF_A_FRONT if whole else _COUNTS_WITH_A_FIT
    least = _least_cards(scenario, model, pool)
    for number in _counts(scenario, pool, wishes):
        if number < least or with_a_fit >= most:
            continue
        on_these = on_pool(scenario, pool, number)
        options = sorted(
            _sized(on_these, model, pool, wishes, seen), key=lambda option: (option.word_rank, option.slowness)
        )
        with_a_fit += bool(options)
        if whole:
            yield from options
            continue
        of_each: dict[tuple[object, ...], Option] = {}
        for option in options:
            of_each.setdefault(_layout_of(option.scenario), option)
        yield from islice(of_each.values(), _BEST_OF_A_COUNT)


def _layout_of(scenario: Scenario) -> tuple[object, ...]:
    """What makes two layouts the same one with another micro-batch or checkpointing."""
    return tuple(getattr(scenario.train, key) for key in _LAYOUT)


def _least_cards(scenario: Scenario, model: Model, pool: Pool) -> int:
    """Cards below which not even the weights would lie in them: two bytes for each that trains, half a byte else."""
    usable = find_gpu(pool.gpu).gpu.usable_bytes
    width = 0.5 if scenario.train.method == "qlora" else 2
    return 1 if usable is None else int(width * model.num_parameters) // usable


def _sized(
    scenario: Scenario, model: Model, pool: Pool, wishes: Wishes, seen: Seen
) -> Iterator[Option]:  # fmt: skip
    """For every layout and kind of checkpointing the micro-batches that fit and are faster than smaller ones."""

    def tried(*values: Mapping[str, object]) -> Option | None:
        together = {key: value for each in values for key, value in each.items()}
        if set(together) & wishes.keep:
            return None
        seen(0)
        return _tried(scenario, _with_batch(scenario, together), pool, wishes)

    kinds = [*_checkpointing(scenario, wishes)]
    for layout in layouts(scenario, model, scenario.num_gpus):
        batches = [*_micro_batches(scenario, wishes)]
        if tried(layout, kinds[-1], batches[0]) is None:
            continue  # what recomputes most, on the smallest micro-batch, needs least
        for checkpointing in kinds:
            fastest = 0.0
            for batch in batches:
                option = tried(layout, checkpointing, batch)
                if option is None or (option.tokens_per_second or 0) <= fastest:
                    break
                fastest = option.tokens_per_second or 0
                yield option


def _with_batch(scenario: Scenario, values: Mapping[str, object]) -> Mapping[str, object]:
    """As many micro-batches as make the optimizer's batch no smaller than what was asked for."""
    train = scenario.train.replace(**values)
    if train.pipeline_parallel_size > 1 or "micro_batch_size" not in values:
        return values
    ranks = max(1, scenario.num_gpus // (train.tensor_parallel_size * train.context_parallel_size))
    asked = scenario.train.micro_batch_size * scenario.train.gradient_accumulation_steps
    steps = -(-asked // (train.micro_batch_size * ranks))
    stated = scenario.train.gradient_accumulation_steps
    return values if steps == stated else {**values, "gradient_accumulation_steps": steps}


def _checkpointing(scenario: Scenario, wishes: Wishes) -> Iterator[Mapping[str, object]]:
    """As asked, and what recomputes more; nothing else where that is to stay."""
    present = scenario.train.checkpointing
    yield {}
    if "checkpointing" in wishes.keep:
        return
    for kind in RECOMPUTE[RECOMPUTE.index(present) + 1 : RECOMPUTE.index(wishes.most_recompute) + 1]:
        if kind == "selective" and not framework_of(scenario.train).sharding.cuts:
            continue
        yield {"checkpointing": kind, "recompute": ()}


def _micro_batches(scenario: Scenario, wishes: Wishes) -> Iterator[Mapping[str, object]]:
    if "micro_batch_size" in wishes.keep:
        yield {}
        return
    for size in _MICRO_BATCHES:
        yield {} if size == scenario.train.micro_batch_size else {"micro_batch_size": size}


def _tried(scenario: Scenario, values: Mapping[str, object], pool: Pool, wishes: Wishes) -> Option | None:
    """The option of these values; None where it is refused, or does not fit the cards or their hosts."""
    try:
        made = changed(scenario, values)
        result = answer(made)
    except VramwiseError:
        return None
    if not _host_holds(result, pool):
        return None
    if result.verdict is None or not result.verdict.fits:
        return None
    price = pool.price_per_hour or wishes.price_per_hour
    named = {key: value for key, value in values.items() if value != ()}
    cards = cards_of(made)
    words = f"{cards} · {words_of(named)}" if named else cards
    weight = len(named)
    return Option(made, result, dict(values), words, "none" if not named else "another layout", weight, price)
