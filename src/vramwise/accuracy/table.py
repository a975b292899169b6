"""Errors of many comparisons, summed up by group (engine, source, …) and quantity."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from vramwise.accuracy.cases import NOT_STATED, Case
from vramwise.accuracy.comparison import Comparison, Failure, OomComparison, Outcome
from vramwise.records import record
from vramwise.result import QUANTITIES

GROUPS: dict[str, Callable[[Case], str]] = {
    "engine": lambda case: case.engine,
    "source": lambda case: case.source_name,
    "specified": lambda case: case.specified or NOT_STATED,
}
"""What rows can be grouped by."""


@record
class ErrorRow:
    """Errors of one quantity in one group; errors and widths are fractions of what was measured.

    `measured` values were measured, `count` of them compared; the rest are `missing` from the estimate or
    belong to cases whose estimate `failed`. `p90_absolute_error` is the least error that 90 % do not exceed
    (nearest rank). `coverage` is the share within low–high, `above` that of more than high: by the interval as it
    is without the case's own source (`vramwise.intervals`). Without a comparison the figures are None.
    """

    group: str
    quantity: str
    measured: int
    missing: int
    failed: int
    count: int = 0
    median_error: float | None = None
    median_absolute_error: float | None = None
    p90_absolute_error: float | None = None
    worst: Comparison | None = None
    coverage: float | None = None
    above: float | None = None
    median_width: float | None = None


@record
class OomRow:
    """Verdicts of one group: how many runs were called right, and the runs of the two ways to be wrong."""

    group: str
    measured: int
    missing: int
    failed: int
    count: int
    correct: int
    false_fits: tuple[OomComparison, ...]
    false_ooms: tuple[OomComparison, ...]


@record
class Failures:
    """Cases whose estimate raised one type of error, with one of them as the example."""

    type: str
    count: int
    case: Case
    message: str


@record
class Table:
    rows: tuple[ErrorRow, ...]
    oom_rows: tuple[OomRow, ...]
    failures: tuple[Failures, ...]


@dataclass(slots=True)
class _Cell:
    comparisons: list[Comparison] = field(default_factory=list)
    ooms: list[OomComparison] = field(default_factory=list)
    missing: int = 0
    failed: int = 0

    @property
    def measured(self) -> int:
        return len(self.comparisons) + len(self.ooms) + self.missing + self.failed


def tabulate(outcomes: Iterable[Outcome], by: str = "engine", weigh_by_source: bool = False) -> Table:
    """The table of errors. Groups come by their number of measured values, quantities in the result's order.

    With `weigh_by_source` every source counts once: median and 90th percentile are medians over the sources'
    own, coverage is the mean of the sources' shares. Count, worst and verdicts stay those of all cases.
    """
    group_of = GROUPS[by]
    cells: defaultdict[tuple[str, str], _Cell] = defaultdict(_Cell)
    failures: dict[str, list[tuple[Case, Failure]]] = {}
    for outcome in outcomes:
        _file(outcome, group_of(outcome.case), cells)
        if outcome.failure:
            failures.setdefault(outcome.failure.type, []).append((outcome.case, outcome.failure))
    sizes: Counter[str] = Counter()
    for (group, _), cell in cells.items():
        sizes[group] += cell.measured
    ordered = sorted(cells.items(), key=lambda item: (-sizes[item[0][0]], item[0][0], _rank(item[0][1])))
    return Table(
        rows=tuple(_error_row(g, q, cell, weigh_by_source) for (g, q), cell in ordered if q != "oom"),
        oom_rows=tuple(_oom_row(g, cell) for (g, q), cell in ordered if q == "oom"),
        failures=tuple(
            Failures(type_, len(failed), failed[0][0], failed[0][1].message)
            for type_, failed in sorted(failures.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
    )


def worst_comparisons(outcomes: Iterable[Outcome], count: int) -> list[Comparison]:
    """The `count` comparisons with the largest absolute error, worst first."""
    everything = [comparison for outcome in outcomes for comparison in outcome.comparisons]
    return sorted(everything, key=lambda c: -abs(c.error))[:count]


def _file(outcome: Outcome, group: str, cells: defaultdict[tuple[str, str], _Cell]) -> None:
    for comparison in outcome.comparisons:
        cells[group, comparison.quantity].comparisons.append(comparison)
    if outcome.oom:
        cells[group, "oom"].ooms.append(outcome.oom)
    for quantity in outcome.missing:
        cells[group, quantity].missing += 1
    if outcome.failure:
        for quantity in outcome.case.measured:
            cells[group, quantity].failed += 1


def _rank(quantity: str) -> tuple[int, str]:
    return (QUANTITIES.index(quantity) if quantity in QUANTITIES else len(QUANTITIES), quantity)


def _error_row(group: str, quantity: str, cell: _Cell, weigh_by_source: bool) -> ErrorRow:
    compared = cell.comparisons
    if not compared:
        return ErrorRow(group, quantity, cell.measured, cell.missing, cell.failed)
    sources = _by_source(compared) if weigh_by_source else [compared]
    return ErrorRow(
        group,
        quantity,
        cell.measured,
        cell.missing,
        cell.failed,
        count=len(compared),
        median_error=_median_of(sources, lambda cs: statistics.median(c.error for c in cs)),
        median_absolute_error=_median_of(sources, lambda cs: statistics.median(abs(c.error) for c in cs)),
        p90_absolute_error=_median_of(sources, lambda cs: nearest_rank([abs(c.error) for c in cs])),
        worst=max(compared, key=lambda c: abs(c.error)),
        coverage=statistics.fmean(statistics.fmean(c.in_interval for c in cs) for cs in sources),
        above=statistics.fmean(statistics.fmean(c.above_interval for c in cs) for cs in sources),
        median_width=_median_of(sources, lambda cs: statistics.median(c.width for c in cs)),
    )


def _by_source(compared: Sequence[Comparison]) -> list[list[Comparison]]:
    sources: defaultdict[str, list[Comparison]] = defaultdict(list)
    for comparison in compared:
        sources[comparison.case.source_name].append(comparison)
    return list(sources.values())


def _median_of(sources: Sequence[Sequence[Comparison]], figure: Callable[[Sequence[Comparison]], float]) -> float:
    return statistics.median(figure(compared) for compared in sources)


def nearest_rank(values: Sequence[float], percent: int = 90) -> float:
    """The smallest of `values` that at least `percent` of them do not exceed."""
    rank = -(-percent * len(values) // 100)  # rounded up, in whole numbers
    return sorted(values)[max(rank, 1) - 1]


def _oom_row(group: str, cell: _Cell) -> OomRow:
    false_fits = tuple(oom for oom in cell.ooms if oom.false_fit)
    false_ooms = tuple(oom for oom in cell.ooms if oom.false_oom)
    correct = len(cell.ooms) - len(false_fits) - len(false_ooms)
    return OomRow(group, cell.measured, cell.missing, cell.failed, len(cell.ooms), correct, false_fits, false_ooms)
