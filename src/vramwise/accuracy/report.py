"""Estimates held against files of measured cases: the run, its JSON, and its text for a person."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vramwise.accuracy.cases import Case, UnusableLine, case_files, read_cases
from vramwise.accuracy.comparison import Comparison, Estimate, Outcome, compare
from vramwise.accuracy.reliability import Reliability, reliability_of
from vramwise.accuracy.table import ErrorRow, OomRow, Table, tabulate, worst_comparisons
from vramwise.records import record

Watched = Callable[[Sequence[Case]], Iterable[Case]]
"""Hands out the cases one by one, to somebody who shows how far it is."""


@record
class Report:
    """What `vramwise accuracy` found: the outcome of every case, and the lines that are none."""

    outcomes: tuple[Outcome, ...]
    unusable: tuple[UnusableLine, ...]
    table: Table
    worst: tuple[Comparison, ...] = ()

    @property
    def reliability(self) -> Reliability:
        """The verdicts' probabilities against what became of the runs."""
        return reliability_of([outcome.oom for outcome in self.outcomes if outcome.oom is not None])

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; errors, widths and coverage are fractions, an infinite one is null."""
        return {
            "schema": 1,
            "cases": len(self.outcomes),
            "rows": [_row(row) for row in self.table.rows],
            "oom": [_oom(row) for row in self.table.oom_rows],
            "reliability": _reliability(self.reliability),
            "errors": [
                {"type": f.type, "count": f.count, "example": {"id": f.case.id, "message": f.message}}
                for f in self.table.failures
            ],
            "unusable": [{"file": u.file, "line": u.line, "reason": u.reason} for u in self.unusable],
            "worst": [_comparison(comparison) for comparison in self.worst],
        }


def judge(
    paths: Iterable[str | Path],
    estimate: Estimate,
    *,
    by: str = "engine",
    weigh_by_source: bool = False,
    worst: int = 0,
    watched: Watched = iter,
) -> Report:
    """Estimate every case of the files and folders in `paths` and sum up the errors.

    `by` is a key of `table.GROUPS`; `worst` says how many of the largest errors to keep by name.
    Raises SourceError and UsageError for paths as `case_files` does; a bad line or a failing estimate
    is counted, never raised.
    """
    lines = [line for file in case_files(paths) for line in read_cases(file)]
    cases = [line for line in lines if isinstance(line, Case)]
    outcomes = [compare(case, estimate) for case in watched(cases)]
    return Report(
        tuple(outcomes),
        tuple(line for line in lines if isinstance(line, UnusableLine)),
        tabulate(outcomes, by, weigh_by_source),
        tuple(worst_comparisons(outcomes, worst)),
    )


def _row(row: ErrorRow) -> dict[str, object]:
    return {
        "group": row.group,
        "quantity": row.quantity,
        "measured": row.measured,
        "count": row.count,
        "missing": row.missing,
        "failed": row.failed,
        "median_error": _finite(row.median_error),
        "median_absolute_error": _finite(row.median_absolute_error),
        "p90_absolute_error": _finite(row.p90_absolute_error),
        "worst_error": _finite(row.worst.error) if row.worst else None,
        "worst_id": row.worst.case.id if row.worst else None,
        "coverage": row.coverage,
        "above": row.above,
        "median_width": _finite(row.median_width),
    }


def _reliability(found: Reliability) -> dict[str, object]:
    bins = [
        {"low": one.low, "high": one.high, "count": one.count, "mean_probability": one.said, "share_fitted": one.fitted}
        for one in found.bins
    ]
    return {"count": found.count, "brier_score": found.brier, "bins": bins}


def _oom(row: OomRow) -> dict[str, object]:
    return {
        "group": row.group,
        "measured": row.measured,
        "count": row.count,
        "missing": row.missing,
        "failed": row.failed,
        "correct": row.correct,
        "accuracy": row.correct / row.count if row.count else None,
        "false_fits": len(row.false_fits),
        "false_fit_ids": [oom.case.id for oom in row.false_fits],
        "false_ooms": len(row.false_ooms),
        "false_oom_ids": [oom.case.id for oom in row.false_ooms],
    }


def _comparison(comparison: Comparison) -> dict[str, object]:
    return {
        "id": comparison.case.id,
        "file": comparison.case.file,
        "line": comparison.case.line,
        "engine": comparison.case.engine,
        "quantity": comparison.quantity,
        "error": _finite(comparison.error),
        "measured": comparison.measured,
        "low": comparison.low,
        "expected": comparison.expected,
        "high": comparison.high,
        "in_interval": comparison.in_interval,
        "source": comparison.case.source,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
