"""Lists on a screen: columns without lines, numbers to the right; the same text without a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from vramwise.errors import printable

Row = Sequence[str]


def print_table(heads: Sequence[str], rows: Sequence[Row], numbers: Sequence[int] = (), title: str = "") -> None:
    """Print `rows` under `heads`; the columns in `numbers` are set to the right, empty cells read –."""
    filled = [[printable(cell) or "–" for cell in row] for row in rows]
    if title:
        print(title)
    if sys.stdout.isatty():
        _print_rich(heads, filled, set(numbers))
    else:
        print(plain_table(heads, filled, set(numbers)))


def plain_table(heads: Sequence[str], rows: Sequence[Row], numbers: set[int]) -> str:
    """The table as text: two blanks between columns, nothing cut off."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in [heads, *rows]
    )


def _print_rich(heads: Sequence[str], rows: Sequence[Row], numbers: set[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i in numbers else "left", no_wrap=i in numbers, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def figure(value: float | None, decimals: int = 0) -> str:
    """A number with commas, without needless decimals; empty when it is not known."""
    if value is None:
        return ""
    return f"{value:,.{decimals}f}" if decimals else f"{value:,.10g}"
