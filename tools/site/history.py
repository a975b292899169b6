"""The page of errors by release: benchmarks/history.csv, and the accuracy page of this version as the last column."""

from __future__ import annotations

import sys
from pathlib import Path

from reference import row, table

HEAD = """# Have the estimates got better?

Errors of each release on the cases that it was published with, and of this version. Each release has more cases, most
of them predicted before anything was changed for them, so that a line may get worse while no estimate did:
[the changelog](../changelog.md) has, under "Numbers that changed", which did. In a cell: median and 90th percentile of
the absolute error in percent, share inside the interval, and of how many values.

"""


def pages(root: Path) -> dict[str, str]:
    """The page by its path."""
    sys.path.insert(0, str(root / "tools"))
    from accuracy_history import PAGE, kept, lines_of

    columns: dict[str, dict[tuple[str, str], str]] = {}
    now = [{"version": "now", "day": "", **line} for line in lines_of(PAGE.read_text("utf-8"))]
    for line in (*kept(), *now):
        title = f"{line['version']} ({line['day']})" if line["day"] else "this version"
        cell = f"{line['median_absolute']}, {line['p90_absolute']} · {line['inside']} % · {line['count']}"
        columns.setdefault(title, {})[line["engine"], line["quantity"]] = cell
    names = sorted({name for cells in columns.values() for name in cells})
    rows = [row(*name, *(cells.get(name, "–") for cells in columns.values())) for name in names]
    return {"reference/history.md": HEAD + table(("engine", "quantity", *columns), rows)}
