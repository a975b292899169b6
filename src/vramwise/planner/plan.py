"""`plan(scenario, wishes)`: the changes, cards and layouts with which a model runs or trains, best first.

What is asked for is kept as far as it is stated among `keep`; every option is a full estimate of its own scenario.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial

from vramwise.errors import UsageError, VramwiseError
from vramwise.estimation import model_of
from vramwise.planner.beside import Beside
from vramwise.planner.card_precision import for_the_card
from vramwise.planner.changes import LENGTHS, Asked, Change, Cost
from vramwise.planner.combinations import MOST_ESTIMATES, WEIGHTS, Reached, Seen, combinations
from vramwise.planner.door import of_its_family
from vramwise.planner.in_the_way import (
    instead_of,
    precision_taken,
    reasons_of,
    relaxed,
    verdict_on_these,
    with_adapters,
)
from vramwise.planner.inventory import MOST_CARDS, Pool
from vramwise.planner.option import RECOMPUTE, Option, Wishes, words_of
from vramwise.planner.over_gpus import answer, cards_of, is_there, laid_out, on_pool, own_pool
from vramwise.planner.ranking import best, is_held_here, is_sure_enough, standing
from vramwise.planner.rows import Row
from vramwise.planner.saved_search import SavedSearch, question_of
from vramwise.planner.suggestions import Estimate, changes_of
from vramwise.records import record
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.training.speed.over_links import OverLink
from vramwise.training_parts import steps_over_links
from vramwise.units import format_bytes

_MOST_FITS = 12  # of changes: more only ask more
_MOST_FITS_OF_A_LOAD = 36  # more may ask for fewer cards
_MOST_SERVING_CARDS = 64
_MOST_RELAXED = 40  # estimates with one wish less


@record
class Plan:
    """The options, best first, how many scenarios were estimated, and what stands in the way of what was asked.

    `refusal`: the plain no, where no option is on these cards' own memory; `instead`: another method with which they do
    hold it. `of_its_family`: a smaller model that does fit, where no option does. `links`: the step of the best option
    over several cards where these are joined in another way.
    """

    goal: str
    asked: Result
    searched: int
    options: tuple[Option, ...]
    binding: str
    reasons: tuple[str, ...] = ()
    refusal: str = ""
    instead: Option | None = None
    tokens: int | None = None
    links: tuple[OverLink, ...] = ()
    interrupted: bool = field(default=False, compare=False)
    of_its_family: Row | None = None

    def to_dict(self) -> dict[str, object]:
        """The plan as `vramwise plan --json` prints it."""
        return {
            "goal": self.goal,
            "searched": self.searched,
            "options": [option.to_dict(self.tokens) for option in self.options],
            "binding": self.binding,
            "reasons": list(self.reasons),
            "refusal": self.refusal or None,
            "instead": None if self.instead is None else self.instead.to_dict(self.tokens),
            "links": [one.to_dict() for one in self.links],
            "interrupted": self.interrupted,
            "of_its_family": None if self.of_its_family is None else self.of_its_family.to_dict(),
        }


def plan(
    scenario: Scenario | Mapping[str, object], wishes: Wishes, pools: Sequence[Pool] = (),
    seen: Seen = lambda number: None, save: str | None = None, processes: int = 1,
) -> Plan:  # fmt: skip
    """What to change, and how many of which GPUs in which layout, so that `scenario` fits.

    `scenario` is a `Scenario` or the same as a table; its task is that of `wishes.goal` (GOALS). `pools`: the GPUs that
    there are; without, the scenario's own cards, and more of them where their number is not stated. `seen` is called
    with the number of estimates so far. `save`: a file that keeps the search for layouts, and from which the same
    question goes on. `processes`: how many search layouts beside one another, where there are many. Raises what the
    estimate of the scenario raises; UsageError where there is no
    card to plan for. A KeyboardInterrupt ends the search with what was found.
    """
    if not isinstance(scenario, Scenario):
        scenario = Scenario.from_dict(scenario)
    if not pools and scenario.gpu is None and scenario.gpu_total_bytes is None and not scenario.gpus:
        raise UsageError("no card to plan for: give --gpu CARD, or --inventory FILE with those there are")
    if scenario.num_gpus > MOST_CARDS:
        raise UsageError(f"num_gpus: a plan looks at {MOST_CARDS:,} cards at most, got {scenario.num_gpus:,}")
    _refuse_half_of_the_prices(wishes, pools)
    most_fits = _MOST_FITS if wishes.requests is None else _MOST_FITS_OF_A_LOAD
    starts = list(_starts(scenario, pools))
    first = starts[0][0]
    found, reached, interrupted = list[Option](), list[Reached](), False
    searched = 0

    def count(number: int) -> None:
        nonlocal searched
        searched += 1
        seen(searched)

    def enough(one: Reached) -> bool:
        load = _option_of(one, wishes, pools).load  # one server that holds all requests is enough
        return one.is_sure and is_sure_enough(one, wishes) and (load is None or load.replicas == 1)

    asked, saved = answer(first), SavedSearch(save, question_of(first, (wishes, *pools)))
    try:
        for start, pool in starts:
            fits = 0
            for one in combinations(start, answer, partial(_is_allowed, wishes), MOST_ESTIMATES, count, enough):
                reached.append(one)
                if (
                    one.fits
                    and is_sure_enough(one, wishes)
                    and _is_where_wished(one, wishes)
                    and (pool is None or is_there(one, pool))
                ):
                    option = _option_of(one, wishes, pools)
                    if pool is not None and option.load is not None and option.load.num_gpus > pool.count:
                        continue
                    found.append(option)
                    fits += not one.hangs
                    if fits >= most_fits:
                        break
        if first.task == "serve" and not reached[0].is_sure:
            for start, pool in starts:
                for one in _on_more_cards(start, answer, wishes, count):
                    if is_sure_enough(one, wishes) and (pool is None or is_there(one, pool)):
                        found.append(_option_of(one, wishes, pools))
        if first.task == "train":
            if wishes.goal == "fine-tune" and not any(is_held_here(option, first) for option in found):
                adapted = with_adapters(first, asked, answer, partial(_is_allowed, wishes))
                found += [_option_of(one, wishes, pools) for one in adapted]
            model = model_of(first)[1]
            with Beside(processes) as beside:
                for pool in pools or own_pool(first):
                    for laid in laid_out(first, model, pool, wishes, count, saved, beside):
                        found.append(laid)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        saved.write()
    options = sorted(
        best([option for option in found if is_sure_enough(option, wishes)], wishes, None if pools else first),
        key=lambda option: standing(option, wishes, None if pools else first),
    )
    binding = _binding(asked, reached, options, wishes)
    if not options and not interrupted and asked.capacity is not None:
        binding += _without_a_wish(first, wishes, count)
    refusal = verdict_on_these(asked, wishes, options)
    instead = _instead(first, asked, wishes) if refusal and "method" not in wishes.keep and not interrupted else None
    ends_here = not options and instead is None and not interrupted and wishes.goal != "train"
    ends_here = ends_here and "method" not in wishes.keep  # with the method that fits
    reasons = (*reasons_of(asked), *precision_taken(first))
    return Plan(
        wishes.goal, asked, searched + 1, tuple(options), binding, reasons, refusal, instead, wishes.tokens,
        _links(options), interrupted, of_its_family(first, first.task) if ends_here else None,
    )  # fmt: skip


def _on_more_cards(scenario: Scenario, answer: Estimate, wishes: Wishes, seen: Seen) -> Iterator[Reached]:
    """What was asked over as many cards as it takes, where their number is open: what is less on fewer of them is
    another question's answer. What fits tightly on the way stands beside it."""
    if "num_gpus" in scenario.explicit:
        return
    start = Reached(scenario, answer(scenario), (), 0)
    while start.scenario.num_gpus < _MOST_SERVING_CARDS:
        found = list[Reached]()
        for change in changes_of(Asked(start.scenario, start.result)):
            if "num_gpus" in change.values and _is_allowed(wishes, change):
                seen(1)
                with suppress(VramwiseError):
                    made = change.of(start.scenario)
                    reached = Reached(made, answer(made), (*start.changes, change), WEIGHTS[change.rank])
                    if reached.is_sure:
                        yield reached
                        return
                    found.append(reached)
        if not found:
            return
        yield from (one for one in found if one.fits)
        start = min(found, key=lambda one: one.scenario.num_gpus)


def _instead(scenario: Scenario, asked: Result, wishes: Wishes) -> Option | None:
    found = instead_of(scenario, asked, answer)
    if found is None:
        return None
    return Option(
        for_the_card(found.scenario), found.result, {"method": found.scenario.train.method}, words_of(found.values),
        "adapters train, the model does not", 0, wishes.price_per_hour,
    )  # fmt: skip


def _links(options: Sequence[Option]) -> tuple[OverLink, ...]:
    first = next((option.scenario for option in options if option.scenario.num_gpus > 1), None)
    return steps_over_links(first) if first is not None and first.task == "train" else ()


def _starts(scenario: Scenario, pools: Sequence[Pool]) -> Iterator[tuple[Scenario, Pool | None]]:
    """The scenario on cards of every pool; of a training on those of the first, since layouts go over all of them.

    The pool is None where the scenario names its own cards.
    """
    if not pools or scenario.gpu is not None:
        yield scenario, next((pool for pool in pools if pool.gpu == scenario.gpu), None)
        return
    for pool in pools if scenario.task != "train" else pools[:1]:
        yield on_pool(scenario, pool), pool


def _refuse_half_of_the_prices(wishes: Wishes, pools: Sequence[Pool]) -> None:
    """Raises UsageError where money orders options of which only some have a price."""
    without = [pool.gpu for pool in pools if pool.price_per_hour is None]
    if wishes.rank in ("money", "front") and wishes.price_per_hour is None and 0 < len(without) < len(pools):
        raise UsageError(f"{without[0]} has no price_per_hour and others have: give it, or --price for those without")


def _without_a_wish(scenario: Scenario, wishes: Wishes, seen: Seen) -> str:
    """The first wish without which changes are found that fit, and these; empty where giving up one is not enough."""
    try:
        for name, fewer in relaxed(wishes):
            for one in combinations(scenario, answer, partial(_is_allowed, fewer), _MOST_RELAXED, seen):
                if one.fits and is_sure_enough(one, fewer):
                    return f"; without {name} it fits: {words_of(one.values)}"
    except KeyboardInterrupt:
        pass
    return ""


def _is_allowed(wishes: Wishes, change: Change) -> bool:
    """Whether a change keeps to the wishes."""
    keys = set(change.values)
    if keys & wishes.keep or (change.rank == Cost.HOST_MEMORY and not wishes.offloads):
        return False
    if wishes.goal == "train" and "method" in keys:
        return False
    if wishes.requests is not None and keys & LENGTHS:
        return False  # shorter requests are another load
    checkpointing = change.values.get("checkpointing", "none")
    return RECOMPUTE.index(str(checkpointing)) <= RECOMPUTE.index(wishes.most_recompute)


def _option_of(reached: Reached, wishes: Wishes, pools: Sequence[Pool]) -> Option:
    costs = dict.fromkeys(change.cost for change in reached.changes if not change.cost.startswith("none"))
    own = (pool.price_per_hour for pool in pools if pool.gpu == reached.scenario.gpu)
    price = next(own, None) or wishes.price_per_hour
    words = words_of(reached.values)
    if len(pools) > 1 and reached.scenario.gpu is not None:
        words = f"{cards_of(reached.scenario)} · {words}"
    return Option(
        for_the_card(reached.scenario), reached.result, reached.values, words, "; ".join(costs) or "none",
        reached.weight, price, wishes.requests,
    )  # fmt: skip


def _is_where_wished(one: Reached, wishes: Wishes) -> bool:
    """Whether nothing is in host memory where nothing may be: llama.cpp puts there what the cards cannot hold."""
    settings = one.result.scenario.get(one.scenario.task)
    if wishes.offloads or not isinstance(settings, dict):
        return True
    layers = settings.get("n_gpu_layers")
    if not isinstance(layers, int):
        return True
    return layers > model_of(one.scenario)[1].num_layers and not settings.get("n_cpu_moe")


def _binding(asked: Result, reached: list[Reached], options: list[Option], wishes: Wishes) -> str:
    """What is largest where the scenario as asked needs most; by how much the best of all misses where none fits."""
    peak = next((phase for phase in asked.phases if phase.name == asked.peak_phase), None)
    largest = max(peak.components.children, key=lambda node: node.bytes, default=None) if peak is not None else None
    what = "" if largest is None or peak is None else f"{largest.name} ({format_bytes(largest.bytes)} at {peak.name})"
    if options or asked.capacity is None:
        return what
    needs = [int(one.result.needed.expected) for one in reached if "total_needed" in one.result.quantities]
    missing = min(needs, default=0) - asked.capacity.usable_bytes
    wish = f", with {', '.join(sorted(wishes.keep))} kept" if wishes.keep else ""
    if missing > 0:
        return f"{what}; the best that was tried misses by {format_bytes(missing)}{wish}"
    risk = "" if wishes.risk is None else f" with a chance of running out below {wishes.risk:g}"
    return f"{what}; nothing that was tried fits{risk}{wish}"
