"""Why what was asked does not fit, and which wish stands in the way where nothing that keeps to them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.planner.card_precision import precision_of_the_card
from vramwise.planner.changes import Asked, Change, Cost
from vramwise.planner.combinations import WEIGHTS, Reached
from vramwise.planner.option import RECOMPUTE, Option, Wishes
from vramwise.planner.training_changes import training_combinations
from vramwise.records import replace
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.training.recipe.precision import without_bf16
from vramwise.units import format_bytes
from vramwise.verdict import Advice, LateReasons


def reasons_of(asked: Result) -> tuple[str, ...]:
    """The verdict's reasons without what it says to set."""
    verdict = asked.verdict
    if verdict is None or verdict.fits:
        return ()
    if isinstance(verdict.reasons, LateReasons):
        return verdict.reasons.without_changes()
    return tuple(reason for reason in verdict.reasons if not isinstance(reason, Advice))


def precision_taken(scenario: Scenario) -> tuple[str, ...]:
    """In which precision the cards train, where they have no bf16 and nobody stated one."""
    precision = precision_of_the_card(scenario).get("precision")
    if precision is None:
        return ()
    return (f"{without_bf16(scenario)} does not compute in bf16: what is asked and every option is in {precision}",)


def verdict_on_these(asked: Result, wishes: Wishes, options: Sequence[Option]) -> str:
    """The plain no to a training that neither fits as asked nor with any option on these cards' own memory."""
    if wishes.goal != "train" or asked.verdict is None or asked.verdict.fits or asked.capacity is None:
        return ""
    many = int(str(asked.scenario.get("num_gpus") or 1))
    for option in options:
        if option.scenario.num_gpus <= many and "host_memory" not in option.result.quantities:
            return ""
    unequal = asked.scenario.get("gpus")
    if isinstance(unequal, list | tuple) and unequal:
        return f"no: not in the memory of {' + '.join(find_gpu(str(one)).gpu.name for one in unequal)}"
    name = find_gpu(asked.capacity.gpu).gpu.name if asked.capacity.gpu else format_bytes(asked.capacity.total_bytes)
    return f"no: not in the memory of {many:,} × {name}"


def instead_of(scenario: Scenario, asked: Result, answer: Callable[[Scenario], Result]) -> Reached | None:
    """Adapters with which the same cards do hold it: the first that surely do, else the mildest."""
    found = list(with_adapters(scenario, asked, answer, lambda change: True))
    return next((one for one in found if one.is_sure), found[0] if found else None)


def with_adapters(
    scenario: Scenario, asked: Result, answer: Callable[[Scenario], Result], allowed: Callable[[Change], bool]
) -> Iterator[Reached]:
    """Adapters with which the same cards hold it, of the combinations that people take the mildest first, until it is
    sure."""
    for change in training_combinations(Asked(scenario, asked)):
        if change.rank >= Cost.HOST_MEMORY or not allowed(change):
            continue
        try:
            made = change.of(scenario)
            one = Reached(made, answer(made), (change,), WEIGHTS[change.rank])
        except VramwiseError:
            continue
        if made.train.method != scenario.train.method and one.fits:
            yield one
            if one.is_sure:
                return


def relaxed(wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """The wishes with one of them given up, and how that one is written."""
    for key in sorted(wishes.keep):
        yield f"--keep {key}", replace(wishes, keep=wishes.keep - {key})
    if not wishes.offloads:
        yield "--no-offload", replace(wishes, offloads=True)
    if wishes.most_recompute != RECOMPUTE[-1]:
        yield f"--max-recompute {wishes.most_recompute}", replace(wishes, most_recompute=RECOMPUTE[-1])
    if wishes.risk is not None:
        yield f"--risk {wishes.risk:g}", replace(wishes, risk=None)
