"""How many of which GPUs a training takes, and how it is best laid out over them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate
from vramwise.hardware import find_gpu
from vramwise.models.model import Model
from vramwise.planner.beside import Beside
from vramwise.planner.card_precision import for_the_card
from vramwise.planner.changes import changed
from vramwise.planner.combinations import Reached, Seen
from vramwise.planner.inventory import Pool
from vramwise.planner.option import Option, Wishes, words_of
from vramwise.planner.saved_search import Candidate, SavedSearch
from vramwise.planner.searched_layouts import searched
from vramwise.result import Result
from vramwise.scenario import Scenario

_MOST_RECHECKED = 200
_MOST_CARDS = 4096
_COUNTS_WITH_A_FIT = 2  # of cards: the fewest that are enough, and twice as many
_COUNTS_OF_A_FRONT = 4
_BEST_OF_A_COUNT = 3
_LAYOUT = (
    "tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size", "expert_parallel_size", "zero_stage",
    "fsdp",
)  # fmt: skip

_ON_THE_HOST = ("host_memory", "weights_host", "host_buffer")


def answer(scenario: Scenario) -> Result:
    """The estimate that a search goes by: without a replay, in a precision of the cards where none is stated."""
    return estimate(for_the_card(scenario), replays=False)


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
    scenario: Scenario, model: Model, pool: Pool, wishes: Wishes, seen: Seen, saved: SavedSearch | None = None,
    beside: Beside | None = None,
) -> Iterator[Option]:  # fmt: skip
    """The fastest layouts on the fewest cards of a pool that are enough, and on the next number of them.

    They are searched for on columns of sizes; those that come first are estimated by themselves, and stand only where
    they fit then. After a KeyboardInterrupt the best so far still come, and then it is raised again.
    """
    with_a_fit, whole = 0, wishes.rank == "front"
    most = _COUNTS_OF_A_FRONT if whole else _COUNTS_WITH_A_FIT
    least = _least_cards(scenario, model, pool)
    for number in _counts(scenario, pool, wishes):
        if number < least or with_a_fit >= most:
            continue
        on_these = on_pool(scenario, pool, number)
        search = searched(on_these, model, wishes, seen, saved, beside)
        candidates = search.candidates
        chosen = _unbeaten(candidates) if whole else candidates
        options = islice(
            _rechecked(on_these, chosen, pool, wishes, each_once=not whole), None if whole else _BEST_OF_A_COUNT
        )
        found = False
        for option in options:
            found = True
            yield option
        with_a_fit += found
        if not search.is_whole:
            raise KeyboardInterrupt


def _unbeaten(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats in memory and speed at once; candidates come the fastest first."""
    least, found = float("inf"), []
    for one in sorted(candidates, key=lambda one: (-one.tokens_per_second, one.needed_bytes)):
        if one.needed_bytes < least:
            least = one.needed_bytes
            found.append(one)
    return found


def _rechecked(
    scenario: Scenario, candidates: Sequence[Candidate], pool: Pool, wishes: Wishes, *, each_once: bool
) -> Iterator[Option]:  # fmt: skip
    """Candidates with an estimate of their own, in their order; `each_once`: one of each layout."""
    met: set[tuple[object, ...]] = set()
    for one in candidates[:_MOST_RECHECKED]:
        layout = _layout_of(changed(scenario, one.values)) if each_once else ()
        if layout in met:
            continue
        option = _tried(scenario, one.values, pool, wishes)
        if option is not None and (wishes.risk is None or option.probability >= 1 - wishes.risk):
            met |= {layout} if each_once else set()
            yield option


def _layout_of(scenario: Scenario) -> tuple[object, ...]:
    """What makes two layouts the same one with another micro-batch or checkpointing."""
    return tuple(getattr(scenario.train, key) for key in _LAYOUT)


def _least_cards(scenario: Scenario, model: Model, pool: Pool) -> int:
    """Cards below which not even the weights would lie in them: two bytes for each that trains, half a byte else."""
    usable = find_gpu(pool.gpu).gpu.usable_bytes
    width = 0.5 if scenario.train.method == "qlora" else 2
    return 1 if usable is None else int(width * model.num_parameters) // usable


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
    return Option(
        for_the_card(made), result, dict(values), words, "none" if not named else "another layout", weight, price
    )
