"""Lists on a screen: columns without lines, numbers to the right; the same text without a terminal.

A table that is wider than the screen comes in blocks, each with the first column, and its long texts in several lines:
nothing is cut. In a pipe, where nobody says how wide it is (COLUMNS), every row is one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from vramwise.cli.language import AsIs, broken
from vramwise.cli.screens.paint import screen_width, show, wrapped_text
from vramwise.errors import printable

Row = Sequence[str]
LONGEST_TEXT = 40
"""Signs of a text column in a table that does not fit; longer cells take several lines."""


def print_table(
    heads: Sequence[str], rows: Sequence[Row], numbers: Sequence[int] = (), title: str = "", *, as_is: bool = False
) -> None:
    """Print `rows` under `heads`; the columns in `numbers` are set to the right, empty cells read –.

    `as_is`: the rows are names and sources, which no language changes.
    """
    filled = [[printable(cell) or "–" for cell in row] for row in rows]
    said = sys.stdout.isatty() or os.environ.get("COLUMNS")
    width = screen_width() if said else sys.maxsize
    if title:
        before = [""] if title.startswith("\n") else []
        show([*before, *wrapped_text("", title.strip(), width), ""])
    blocks = table_blocks(heads, filled, set(numbers), width)
    for i, lines in enumerate(blocks):
        rest = [AsIs(line) for line in lines[1:]] if as_is else lines[1:]
        show([*([""] if i else []), [(lines[0], "bold")], *rest])


def table_blocks(heads: Sequence[str], rows: Sequence[Row], numbers: set[int], width: int) -> list[list[str]]:
    """The table's lines, in blocks of as many columns as fit beside the first."""
    whole = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    if sum(whole) + 2 * (len(heads) - 1) <= width:
        return [list(_lines([heads, *rows], list(range(len(heads))), whole, numbers))]
    widths = [size if i in numbers or not i else min(size, LONGEST_TEXT) for i, size in enumerate(whole)]
    groups: list[list[int]] = []
    for i in range(1, len(heads)):
        if groups and sum(widths[one] + 2 for one in (*groups[-1], i)) - 2 <= width:
            groups[-1].append(i)
        else:
            groups.append([0, i])
    return [list(_lines([heads, *rows], group, widths, numbers)) for group in groups]


def _lines(rows: Sequence[Row], group: Sequence[int], widths: Sequence[int], numbers: set[int]) -> Iterator[str]:
    for row in rows:
        cells = [[row[i]] if i in numbers or not i else broken(row[i], widths[i]) for i in group]
        for line in range(max(len(cell) for cell in cells)):
            parts = [cell[line] if line < len(cell) else "" for cell in cells]
            yield "  ".join(
                part.rjust(widths[i]) if i in numbers else part.ljust(widths[i])
                for i, part in zip(group, parts, strict=True)
            ).rstrip()


def figure(value: float | None, decimals: int = 0) -> str:
    """A number with commas, without needless decimals; empty when it is not known."""
    if value is None:
        return ""
    return f"{value:,.{decimals}f}" if decimals else f"{value:,.10g}"
