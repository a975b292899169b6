"""In which order the options of a plan stand, and which of them gain nothing beside the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from vramwise.estimation import estimate
from vramwise.planner.changes import ON_THE_HOST
from vramwise.planner.combinations import Reached, Values
from vramwise.planner.option import Option, Wishes
from vramwise.planner.suggestions import NEARLY_SURE
from vramwise.records import replace
from vramwise.scenario import Scenario

MOST_OPTIONS = 6
MOST_OF_A_FRONT = 16


def is_sure_enough(option: Option | Reached, wishes: Wishes) -> bool:
    return wishes.risk is None or option.probability >= 1 - wishes.risk


def _longest(option: Option) -> int:
    """Tokens of a request, of serving."""
    settings = option.result.scenario.get(option.scenario.task)
    found = settings if isinstance(settings, dict) else {}
    return int(found.get("max_model_len") or found.get("n_ctx") or 0)


def _cards(option: Option) -> int:
    """GPUs of all replicas."""
    return option.scenario.num_gpus if option.load is None else option.load.num_gpus


def _of_one_request(option: Option) -> float:
    """Tokens a second of one request, of serving; 0 where that is not known."""
    speed = option.request_speed
    return 0.0 if speed is None else speed.usual[0]


def _money(option: Option) -> float:
    """What a token costs, of serving an hour of all servers; where no price is known, GPU-seconds of it."""
    rate, price = option.tokens_per_second, option.cost_per_hour
    if option.scenario.task == "serve":
        return _cards(option) * (1.0 if option.price_per_hour is None else option.price_per_hour)
    return (price if price is not None else option.scenario.num_gpus) / rate if rate else float("inf")


def standing(option: Option, wishes: Wishes, here: Scenario | None) -> tuple[bool, bool, int]:
    """Sure ones before tight ones; where the least change is asked for, what is nearly sure on the cards `here`
    before what hangs on more cards, or on host memory that nobody stated. An inventory states both: `here` is None."""
    if here is None or wishes.rank != "change":
        return False, False, option.word_rank
    return option.probability < NEARLY_SURE, _hangs(option, here), option.word_rank


def _hangs(option: Option, here: Scenario) -> bool:
    """Whether it stands or falls with more cards, or with host memory that nobody stated."""
    return option.scenario.num_gpus > here.num_gpus or any(option.change.get(key) for key in ON_THE_HOST)


def is_held_here(option: Option, here: Scenario) -> bool:
    return option.probability >= NEARLY_SURE and not _hangs(option, here)


def best(found: list[Option], wishes: Wishes, here: Scenario | None = None) -> Iterator[Option]:
    """The options in the order wished for, by how they stand first; no two of the same scenario."""
    orders: Mapping[str, Callable[[Option], float]] = {
        "change": lambda option: option.weight + 1000 * (_cards(option) - 1),
        "time": lambda option: -(option.tokens_per_second or _of_one_request(option)),
        "memory": lambda option: float(option.result.needed.expected),
        "money": _money,
        "front": lambda option: option.slowness,
    }
    once = {repr(option.result.scenario): option for option in reversed(found)}
    fewest = dict[str, Option]()
    for option in sorted(once.values(), key=lambda option: option.scenario.num_gpus):
        others = {key: value for key, value in option.change.items() if key != "num_gpus"}
        fewest.setdefault(f"{option.scenario.gpu} {sorted(others.items(), key=str)} {option.word_rank}", option)

    def order(option: Option) -> tuple[tuple[bool, bool, int], float, float]:
        return standing(option, wishes, here), orders[wishes.rank](option), option.slowness - _longest(option)

    ordered = sorted(fewest.values(), key=order)
    if wishes.rank == "memory":
        return islice(filter(None, map(partial(_verified, wishes), ordered)), MOST_OPTIONS)
    if wishes.rank != "front":
        gaining = _without_idle_changes(filter(None, map(partial(_verified, wishes), ordered)))
        if here is not None and here.task == "serve" and wishes.rank == "change":
            gaining = _one_of_each_number(gaining, here)
        return islice(gaining, MOST_OPTIONS)
    return front(list(filter(None, map(partial(_verified, wishes), islice(front(ordered), MOST_OF_A_FRONT)))))


def _one_of_each_number(options: Iterable[Option], here: Scenario) -> Iterator[Option]:
    """Of servers over more cards than `here` the first of each number of them, if it asks for no more beside the cards
    than those over fewer: another way over the same tells less than the next number."""
    least: dict[int, int] = {}
    for option in options:
        many = option.scenario.num_gpus
        if many > here.num_gpus and (many in least or any(n < many and w < option.weight for n, w in least.items())):
            continue
        if many > here.num_gpus:
            least[many] = option.weight
        yield option


def _without_idle_changes(options: Iterable[Option]) -> Iterator[Option]:
    """No option that changes more than one before it and gains nothing, or that asks as much for shorter requests."""
    before: list[tuple[Values, Option]] = []
    for option in options:
        changes = frozenset((key, repr(value)) for key, value in option.change.items())
        if not any(
            (fewer < changes and _is_no_better(option, than)) or _is_only_shorter(option, than)
            for fewer, than in before
        ):
            before.append((changes, option))
            yield option


def _is_no_better(option: Option, than: Option) -> bool:
    return (
        option.result.needed.expected >= than.result.needed.expected
        and option.probability <= than.probability
        and option.slowness >= than.slowness
        and _longest(option) <= _longest(than)
        and _cards(option) >= _cards(than)
    )


def _is_only_shorter(option: Option, than: Option) -> bool:
    """Whether requests are shorter than with an option of the same engine that asks no more, is as sure to fit, and
    holds as many of them."""
    return (
        _longest(option) < _longest(than)
        and option.weight >= than.weight
        and option.word_rank >= than.word_rank
        and _cards(option) >= _cards(than)
        and _at_once(option) <= _at_once(than)
        and option.scenario.serve.engine == than.scenario.serve.engine
    )


def _at_once(option: Option) -> float:
    held = option.result.quantities.get("max_concurrency")
    return 1.0 if held is None else float(held.expected)


def front(options: Sequence[Option]) -> Iterator[Option]:
    """The options that none beats (Pareto): another with no more memory, time and money, and less of one of them."""
    aims = [(option.result.needed.expected, option.slowness, _money(option), -_longest(option)) for option in options]
    for option, own in zip(options, aims, strict=True):
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in aims):
            yield option


def _verified(wishes: Wishes, option: Option) -> Option | None:
    """The option with its full answer, for which the allocator plays the step; None where that does not fit."""
    result = estimate(option.scenario)
    full = replace(option, result=result)
    return full if result.verdict is not None and result.verdict.fits and is_sure_enough(full, wishes) else None
