"""What to change so that less memory is needed, or that it fits: each a full estimate of the changed scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from vramwise.errors import VramwiseError
from vramwise.estimation import estimate as estimated
from vramwise.estimation import model_of
from vramwise.planner.changes import FLASH, SDPA, Asked, Change, Cost
from vramwise.planner.training_changes import training_changes, training_combinations, with_kernels_of_the_card
from vramwise.records import record
from vramwise.result import VERDICT_WORDS, Quantity, Result, Verdict
from vramwise.scenario import Scenario
from vramwise.scenario.words import command_of
from vramwise.units import format_bytes

MOST = 5
MOST_WITHOUT_A_FIT = 3
MOST_ESTIMATES = 12
LEAST_SAVING = 0.02  # of the need; a smaller one is no help
NEARLY_SURE = 0.9
"""Of fitting; below it a change may not help after all, and stands behind those that will."""

_MILD = frozenset(rank for rank in Cost if rank < Cost.ANOTHER_METHOD)

Estimate = Callable[[Scenario], Result]


def changes_of(asked: Asked) -> Iterator[Change]:
    """Every single change that may help, by the scenario's task."""
    if asked.scenario.task == "train":
        return training_changes(asked)
    from vramwise.planner.inference_changes import CHANGES

    return CHANGES[asked.scenario.task](asked)


def _combinations_of(asked: Asked) -> Iterator[Change]:
    """Several changes at once; none where the task has no such."""
    if asked.scenario.task == "train":
        return training_combinations(asked)
    if asked.scenario.task == "generate":
        from vramwise.planner.pipeline_changes import is_pipeline, pipeline_combinations

        return pipeline_combinations(asked) if is_pipeline(asked) else iter(())
    if asked.scenario.task != "serve":
        return iter(())
    from vramwise.planner.inference_changes import serving_combinations

    return serving_combinations(asked)


@record
class Suggestion:
    """A change, what is needed with it, how much less that is, what is then said of the card, and what it costs."""

    change: Change
    needed: Quantity
    saved_bytes: int
    verdict: Verdict | None

    @property
    def fits(self) -> bool:
        """Whether it fits, or fits tightly; False without a card."""
        return self.verdict is not None and self.verdict.fits

    def to_dict(self, scenario: Scenario | None = None) -> dict[str, object]:
        """The suggestion as JSON-able data, for a scenario with the command that estimates the changed one."""
        values = {key: list(one) if isinstance(one, tuple) else one for key, one in self.change.values.items()}
        return {
            "change": values,
            **({} if scenario is None else {"command": command_of(self.change.of(scenario))}),
            "total_needed": self.needed.to_dict(),
            "saves_bytes": self.saved_bytes,
            "fits": self.fits,
            "cost": self.change.cost,
        }


def suggestion_tables(scenario: Scenario, result: Result | None = None) -> list[dict[str, object]]:
    """`suggestions` as JSON has them; the answer is worked out where it is not at hand."""
    found = suggestions(scenario, estimated(scenario) if result is None else result, estimated)
    return [one.to_dict(scenario) for one in found]


def suggestions(scenario: Scenario, result: Result, estimate: Estimate) -> list[Suggestion]:
    """Changes, best first; none where only a part of the need is known.

    Where the card is too small, those with which it fits in the order of `_place`, with a combination where nothing but
    host memory and more GPUs is surely enough alone. Where there are none, and where the card is large enough, those
    that save most; nobody who has room to spare offloads or takes more GPUs, so these stand there only alone.
    """
    if "total_needed" not in result.quantities:
        return []
    asked = Asked(scenario, result)
    runs = with_kernels_of_the_card(asked)
    if runs is not None:
        return _with(runs, asked, estimate)
    found = _without_needless_package(list(_tried(asked, estimate)))
    if not asked.is_short:
        if result.verdict is not None:
            found = [item for item in found if item.change.rank < Cost.HOST_MEMORY] or found
        return sorted(found, key=lambda item: -item.saved_bytes)[:MOST_WITHOUT_A_FIT]
    best = [item for item in found if _rank(item.verdict) < _rank(result.verdict)]
    if all(item.change.rank >= Cost.HOST_MEMORY or _is_unsure(item) for item in best):
        best += _combined(asked, estimate, best)
    if not best:
        alone = [item for item in found if item.change.rank < Cost.MORE_GPUS]
        return sorted(alone, key=lambda item: -item.saved_bytes)[:MOST_WITHOUT_A_FIT]
    best = _without_another_engine(_without_needless_gpus(best))
    return sorted(best, key=lambda item: _place(item, scenario))[:MOST]


def _place(item: Suggestion, scenario: Scenario) -> tuple[object, ...]:
    """What makes it fit for sure or nearly so, then what needs no further card, what fits best, and the mildest."""
    buys = cast("int", item.change.values.get("num_gpus", 1)) > scenario.num_gpus
    return _is_unsure(item), buys, _rank(item.verdict), item.change.rank, -item.saved_bytes


def _is_unsure(item: Suggestion) -> bool:
    return item.verdict is None or item.verdict.probability < NEARLY_SURE


def _with(runs: Change, asked: Asked, estimate: Estimate) -> list[Suggestion]:
    """Of a run whose kernel the card does not have: what `runs` there, and with it what memory asks for."""
    try:
        scenario = runs.of(asked.scenario)
        result = estimate(scenario)
    except VramwiseError:
        return []
    if result.verdict is not None and result.verdict.fits:
        return [Suggestion(runs, result.needed, asked.need - int(result.needed.expected), result.verdict)]
    return [
        replace(
            one,
            change=replace(
                one.change,
                words=f"{runs.words}, {one.change.words}",
                values={**runs.values, **one.change.values},
            ),
            saved_bytes=asked.need - int(one.needed.expected),
        )
        for one in suggestions(scenario, result, estimate)
    ]


def _tried(asked: Asked, estimate: Estimate) -> Iterator[Suggestion]:
    """Candidates that help, tried mildest first; those that cannot make it fit wait until no other does."""
    candidates = sorted(changes_of(asked), key=lambda change: change.rank)
    helpful = [change for change in candidates if _may_save(asked, change)]
    enough = [change for change in helpful if _may_fit(asked, change)]
    left, fitting, families = MOST_ESTIMATES, 0, set[str]()
    for change in [*enough, *(change for change in helpful if change not in enough)]:
        if not left or fitting >= MOST or (fitting and change not in enough):
            return
        if change.family and change.family in families:
            continue
        left -= 1
        suggestion = _estimated(asked, change, estimate)
        if suggestion is None:
            continue
        if asked.is_short and _rank(suggestion.verdict) < _rank(asked.result.verdict):
            fitting += 1
            if not _is_unsure(suggestion):  # else the next of its family may be surer
                families.add(change.family)
        yield suggestion


def _combined(asked: Asked, estimate: Estimate, there: list[Suggestion]) -> list[Suggestion]:
    """The mildest combinations that make it fit: of those that keep the method until one is sure; another method or
    more GPUs once, and only where none is `there` that is nearly sure."""
    found: list[Suggestion] = []
    taken = {one.change.rank for one in there if not _is_unsure(one)}
    for change in _combinations_of(asked):
        if change.rank in taken or not _may_fit(asked, change):
            continue
        suggestion = _estimated(asked, change, estimate)
        if suggestion is None or _rank(suggestion.verdict) >= _rank(asked.result.verdict):
            continue
        found.append(suggestion)
        if change.rank >= Cost.ANOTHER_METHOD:
            taken.add(change.rank)
        elif _rank(suggestion.verdict) == 0:
            taken |= _MILD
    return found


def _estimated(asked: Asked, change: Change, estimate: Estimate) -> Suggestion | None:
    """A change's own estimate; None where it is refused or helps nothing, or asks for more GPUs than a list names."""
    if asked.scenario.gpus and change.values.get("num_gpus", asked.scenario.num_gpus) != asked.scenario.num_gpus:
        return None
    try:
        result = estimate(change.of(asked.scenario))
    except VramwiseError:
        return None
    if "total_needed" not in result.quantities:
        return None
    saved = asked.need - int(result.needed.expected)
    better = _rank(result.verdict) < _rank(asked.result.verdict)
    if saved < asked.need * LEAST_SAVING and not better:
        return None
    return Suggestion(_with_the_host(change, change.of(asked.scenario), result), result.needed, saved, result.verdict)


def _with_the_host(change: Change, scenario: Scenario, result: Result) -> Change:
    """A change to llama.cpp, which puts on the host what the card cannot hold: with how much that is."""
    held = layers_on_the_host(scenario, result) if change.rank == Cost.ANOTHER_ENGINE else None
    if held is None:
        return change
    return replace(change, cost=f"{change.cost}; {format_bytes(int(held.expected))} of host memory on a node")


def layers_on_the_host(scenario: Scenario, result: Result) -> Quantity | None:
    """The weights of a GGUF file that stay there, where some of its layers or experts do."""
    serve = result.scenario.get("serve")
    settings = serve if isinstance(serve, dict) else {}
    layers = settings.get("n_gpu_layers")
    if not settings.get("n_cpu_moe") and not isinstance(layers, int):
        return None
    whole = isinstance(layers, int) and layers > model_of(scenario)[1].num_layers
    return None if whole and not settings.get("n_cpu_moe") else result.quantities.get("weights_host")


def _may_save(asked: Asked, change: Change) -> bool:
    """Whether it may save enough to be named; without a saving it may still make a tight run a sure one."""
    most = change.saves_at_most
    return most is None or most >= asked.need * LEAST_SAVING or (asked.is_short and change.rank == Cost.NOTHING)


def _may_fit(asked: Asked, change: Change) -> bool:
    most, usable = change.saves_at_most, asked.usable
    return most is None or usable is None or asked.need - most <= usable


def _rank(verdict: Verdict | None) -> int:
    return VERDICT_WORDS.index(verdict.word) if verdict is not None else 0


def _without_needless_gpus(best: list[Suggestion]) -> list[Suggestion]:
    """More GPUs only where the same settings are not enough, or less sure, on those that are there."""
    there = {str(sorted(one.change.values.items())): one for one in best}

    def is_needless(one: Suggestion) -> bool:
        settings = {key: value for key, value in one.change.values.items() if key != "num_gpus"}
        same = there.get(str(sorted(settings.items())))
        return same is not None and same is not one and _rank(same.verdict) <= _rank(one.verdict)

    return [one for one in best if not is_needless(one)]


def _without_another_engine(best: list[Suggestion]) -> list[Suggestion]:
    """Another engine only where no mild setting of this one is enough, however tightly."""
    if any(one.change.rank < Cost.SHORTER for one in best):
        return [one for one in best if one.change.rank != Cost.ANOTHER_ENGINE]
    return best


def _without_needless_package(found: list[Suggestion]) -> list[Suggestion]:
    """Flash attention only where SDPA, which needs no package, saves less: it gets masks, for padding above all."""
    sdpa = min((int(one.needed.expected) for one in found if one.change.values == SDPA.values), default=None)
    return [
        one for one in found
        if one.change.values != FLASH.values or sdpa is None or one.needed.expected < sdpa * (1 - LEAST_SAVING)
    ]  # fmt: skip
