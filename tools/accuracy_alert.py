"""Says where estimates got worse: two tables of `vramwise accuracy --json`, before and after a change.

    vramwise accuracy benchmarks/cases/*.jsonl --json > before.json      # of the branch that a change goes into
    vramwise accuracy benchmarks/cases/*.jsonl --json > after.json
    python tools/accuracy_alert.py before.json after.json [--points 2]

A line (a group and quantity) is worse where its median or 90th percentile of absolute errors grew by more than so many
percentage points, or its intervals hold so many points fewer of the cases. Exit code 1 then. Lines of fewer cases than
LEAST_CASES say nothing; a line that is gone, or lost cases, is said too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

POINTS = 2.0
LEAST_CASES = 5
ERRORS = {"median_absolute_error": "median error", "p90_absolute_error": "90th percentile"}
Line = tuple[str, str]
Rows = Mapping[Line, Mapping[str, Any]]


def worse(before: Rows, after: Rows, points: float = POINTS) -> Iterator[str]:
    """One sentence for each line that got worse."""
    for line, was in before.items():
        name = " ".join(line)
        now = after.get(line)
        if now is None or now["count"] < was["count"]:
            yield f"{name}: {0 if now is None else now['count']} cases are answered, {was['count']} were"
        if now is None or min(was["count"], now["count"]) < LEAST_CASES:
            continue
        for key, title in ERRORS.items():
            more = 100 * ((now[key] or 0) - (was[key] or 0))
            if more > points:
                yield f"{name}: {title} {100 * now[key]:.1f} %, was {100 * was[key]:.1f} % (+{more:.1f} points)"
        if was["coverage"] is not None and now["coverage"] is not None:
            held, hold = 100 * was["coverage"], 100 * now["coverage"]
            if held - hold > points:
                yield f"{name}: intervals hold {hold:.0f} % of cases, held {held:.0f} %"


def rows_of(path: Path) -> Rows:
    """The lines of a table by group and quantity."""
    found = json.loads(path.read_text("utf-8"))
    return {(row["group"], row["quantity"]): row for row in found["rows"]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--points", type=float, default=POINTS, metavar="N", help="percentage points (%(default)s)")
    args = parser.parse_args(arguments)
    said = list(worse(rows_of(args.before), rows_of(args.after), args.points))
    for sentence in said:
        print(f"::error title=accuracy::{sentence}")  # GitHub shows it at the change; elsewhere it is a line
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
