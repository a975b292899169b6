"""Combinations of changes with which a scenario fits, those that ask least of a person first.

A best-first search: from the scenario as asked, every change that may help of a scenario that does not fit yet leads to
another one, whose own answer then says what helps. What is sure to fit is not changed further: more only asks more.
What hangs on cards or host memory that may not be there ends nothing: what these cards hold is looked for on.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from vramwise.errors import VramwiseError
from vramwise.planner.changes import Asked, Change, Cost
from vramwise.planner.suggestions import LEAST_SAVING, Estimate, changes_of, layers_on_the_host
from vramwise.records import record
from vramwise.result import Result
from vramwise.scenario import Scenario

WEIGHTS: Mapping[Cost, int] = {
    Cost.NOTHING: 1,
    Cost.A_PACKAGE: 2,
    Cost.SMALLER_STEPS: 3,
    Cost.TIME: 4,
    Cost.PRECISION: 6,
    Cost.ANOTHER_OPTIMIZER: 8,
    Cost.SHORTER: 12,
    Cost.ANOTHER_METHOD: 14,
    Cost.HOST_MEMORY: 16,
    Cost.MORE_GPUS: 24,
    Cost.ANOTHER_ENGINE: 24,
}
"""What a change asks of a person, against the others: an opinion, which only orders what fits."""

MOST_ESTIMATES = 150
BEYOND_THE_FIRST = 8
"""How much more than the first sure one on these cards another may ask, so that it is looked for."""
Values = frozenset[tuple[str, str]]
Allowed = Callable[[Change], bool]
Seen = Callable[[int], None]


@record
class Reached:
    """A scenario that the changes lead to, with its answer, and what they ask of a person."""

    scenario: Scenario
    result: Result
    changes: tuple[Change, ...]
    weight: int

    @property
    def values(self) -> dict[str, object]:
        """All values that differ from what was asked."""
        return {key: value for change in self.changes for key, value in change.values.items()}

    @property
    def fits(self) -> bool:
        """Whether it fits, however tightly."""
        return self.result.verdict is not None and self.result.verdict.fits

    @property
    def is_sure(self) -> bool:
        return self.result.verdict is not None and self.result.verdict.word == "fits"

    @property
    def probability(self) -> float:
        return 0.0 if self.result.verdict is None else self.result.verdict.probability

    @property
    def hangs(self) -> bool:
        """Whether it asks for what may not be there: more cards, or the host's memory for states; for layers, where the
        number of cards is open."""
        if any(change.rank == Cost.MORE_GPUS or change.offloads for change in self.changes):
            return True
        is_open = "num_gpus" not in self.scenario.explicit
        return is_open and layers_on_the_host(self.scenario, self.result) is not None


Enough = Callable[[Reached], bool]


def combinations(
    scenario: Scenario, estimate: Estimate, allowed: Allowed, most: int = MOST_ESTIMATES, seen: Seen = lambda n: None,
    enough: Enough = lambda reached: reached.is_sure,
) -> Iterator[Reached]:  # fmt: skip
    """Every scenario that is estimated, the one as asked first, then in the order of what its changes ask at least.

    `allowed`: which changes may be made; `seen` is called with the number of estimates so far; `enough`: where no
    further change is looked for. Raises what the estimate of the scenario as asked raises; changes that an engine or
    framework refuses are left out.
    """
    first = Reached(scenario, estimate(scenario), (), 0)
    yield first
    search = _Search(allowed, enough)
    search.open(first)
    for number in range(1, most):
        waiting = search.next()
        if waiting is None:
            return
        seen(number)
        try:
            result = estimate(waiting.scenario)
        except VramwiseError:
            continue
        reached = Reached(waiting.scenario, result, waiting.changes, waiting.weight)
        yield reached
        search.open(reached)


@record(eq=False)
class _Waiting:
    """A scenario that was not estimated yet."""

    scenario: Scenario
    changes: tuple[Change, ...]
    weight: int


class _Search:
    """What waits, what was met, and what fits: A* over sets of changes (Hart, Nilsson, Raphael 1968)."""

    def __init__(self, allowed: Allowed, enough: Enough) -> None:
        self._allowed, self._is_enough = allowed, enough
        self._order = count()
        self._waiting: list[tuple[int, int, _Waiting]] = []
        self._met: set[Values] = set()
        self._fitting: list[Values] = []
        self._enough: int | None = None

    def next(self) -> _Waiting | None:
        """The scenario whose changes, with those that it needs besides, ask least; None when nothing waits."""
        while self._waiting:
            least, _, waiting = heapq.heappop(self._waiting)
            if self._enough is not None and least > self._enough + BEYOND_THE_FIRST:
                return None
            if not self._is_more_than_enough(_values(waiting.changes)):
                return waiting
        return None

    def open(self, reached: Reached) -> None:
        """What one more change leads to waits; nothing where it is sure to fit, or all changes together save too
        little."""
        if self._is_enough(reached):
            self._fitting.append(_values(reached.changes))
            if self._enough is None and not reached.hangs:
                self._enough = reached.weight
            return
        if "total_needed" not in reached.result.quantities:
            return
        asked = Asked(reached.scenario, reached.result)
        changes = [change for change in changes_of(asked) if self._allowed(change) and _may_help(asked, change)]
        for change in changes:
            others = [other for other in changes if other is not change]
            still = _least_weight(asked, change, others)
            if still is not None:
                self._push(reached, _with_accumulation(asked, change), still)

    def _push(self, reached: Reached, change: Change, still: int) -> None:
        changes = (change,) if change.fresh else (*reached.changes, change)
        values = _values(changes)
        if values in self._met or self._is_more_than_enough(values):
            return
        self._met.add(values)
        try:
            scenario = change.of(reached.scenario)
        except VramwiseError:
            return
        weight = (0 if change.fresh else reached.weight) + _weight(change, reached.scenario)
        heapq.heappush(self._waiting, (weight + still, next(self._order), _Waiting(scenario, changes, weight)))

    def _is_more_than_enough(self, values: Values) -> bool:
        """Whether less than these changes is known to be enough."""
        return any(enough <= values for enough in self._fitting)


def _weight(change: Change, scenario: Scenario) -> int:
    """What a change asks; an engine that nobody asked for is changed as easily as a precision."""
    unasked = change.rank == Cost.ANOTHER_ENGINE and "engine" not in scenario.serve.explicit
    return WEIGHTS[Cost.PRECISION if unasked else change.rank]


def _may_help(asked: Asked, change: Change) -> bool:
    most = change.saves_at_most
    return most is None or most >= asked.need * LEAST_SAVING


def _least_weight(asked: Asked, change: Change, others: list[Change]) -> int | None:
    """What has to be asked at least besides one change so that it may fit; None where all together save too little.

    A change saves its `saves_at_most` at most, one without that whatever is missing.
    """
    if asked.usable is None:
        return None
    missing = asked.need - asked.usable - (asked.need if change.saves_at_most is None else change.saves_at_most)
    if missing <= 0:
        return 0
    anything = [WEIGHTS[other.rank] for other in others if other.saves_at_most is None]
    known = [other for other in others if other.saves_at_most is not None]
    largest = sorted((other.saves_at_most or 0 for other in known), reverse=True)
    least = sorted(WEIGHTS[other.rank] for other in known)
    enough = next((n for n in range(1, len(largest) + 1) if sum(largest[:n]) >= missing), None)
    ways = [*anything, *([sum(least[:enough])] if enough is not None else [])]
    return min(ways, default=None)


def _with_accumulation(asked: Asked, change: Change) -> Change:
    """A smaller micro-batch with as many more of them: the optimizer's batch stays."""
    smaller = change.values.get("micro_batch_size")
    if asked.scenario.task != "train" or not isinstance(smaller, int):
        return change
    train = asked.scenario.train
    together = train.micro_batch_size * train.gradient_accumulation_steps
    steps = -(-together // smaller)
    return Change(
        words=f"{change.words}, gradient_accumulation_steps {steps}",
        values={**change.values, "gradient_accumulation_steps": steps},
        cost="smaller kernels, the same batch",
        rank=change.rank,
        saves_at_most=change.saves_at_most,
        family=change.family,
    )


def _values(changes: tuple[Change, ...]) -> Values:
    """What the changes set, the last of a key."""
    return frozenset({key: repr(value) for change in changes for key, value in change.values.items()}.items())
