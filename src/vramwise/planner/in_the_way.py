"""Why what was asked does not fit, and which wish stands in the way where nothing that keeps to them does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vramwise.errors import VramwiseError
from vramwise.hardware import find_gpu
from vramwise.planner.changes import Asked
from vramwise.planner.option import RECOMPUTE, Option, Wishes, words_of
from vramwise.planner.training_changes import training_combinations
from vramwise.records import replace
from vramwise.result import Result
from vramwise.scenario import Scenario
from vramwise.units import format_bytes
from vramwise.verdict import CHANGE, LateReasons

_HALF_PRECISION_BYTES = 2
_MOST_OF_A_CARD = 0.5
"""Share of a card from which weights alone are worth a sentence."""


def reasons_of(asked: Result) -> tuple[str, ...]:
    """The verdict's reasons without what it says to set, and what weights alone take of the cards of a training."""
    verdict = asked.verdict
    if verdict is None or verdict.fits:
        return ()
    reasons = verdict.reasons
    if isinstance(reasons, LateReasons):
        return (*reasons.without_changes(), *_weights_alone(asked))
    said = (reason for reason in reasons if not reason.startswith(CHANGE))
    return (*said, *_weights_alone(asked))


def _weights_alone(asked: Result) -> Iterator[str]:
    """Of full training: the 16-bit weights, shared evenly by all cards, against the room of one."""
    table = asked.scenario.get("train")
    if asked.capacity is None or not isinstance(table, dict) or table.get("method") != "full":
        return
    many, usable = int(str(asked.scenario.get("num_gpus") or 1)), asked.capacity.usable_bytes
    whole = _HALF_PRECISION_BYTES * asked.model.num_parameters
    each = whole // many
    if each < _MOST_OF_A_CARD * usable:
        return
    size, share, room = format_bytes(whole), format_bytes(each), format_bytes(usable)
    shared = f", {share} on each of {many:,} cards" if many > 1 else ""
    if each > usable:
        yield f"16-bit weights alone are {size}{shared}: more than the {room} of a card"
    else:
        left = format_bytes(usable - each)
        yield f"16-bit weights alone are {size}{shared}: {left} are left for gradients, optimizer and activations"


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


def instead_of(
    scenario: Scenario, asked: Result, answer: Callable[[Scenario], Result]
) -> tuple[str, Scenario, Result] | None:  # fmt: skip
    """Adapters with which the same cards do hold it: the mildest of the combinations that people take."""
    for change in training_combinations(Asked(scenario, asked)):
        try:
            made = change.of(scenario)
            result = answer(made)
        except VramwiseError:
            continue
        if made.train.method != scenario.train.method and result.verdict is not None and result.verdict.fits:
            return words_of(change.values), made, result
    return None


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
