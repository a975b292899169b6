"""Lines of text with styles: coloured on a terminal, the same text without escape codes elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Sequence

from vramwise.cli.language import AsIs, broken, cells, padded, said, said_line
from vramwise.errors import printable

Segment = tuple[str, str]
"""Text and its style (`bold`, `red`, ...; empty for none)."""
Line = str | Sequence[Segment]

NARROWEST, WIDEST = 80, 200


def screen_width() -> int:
    """Columns to write in: the terminal's, within 80 and 200 (100 without a terminal)."""
    import shutil  # with what unpacks archives, 2 ms

    return min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)


def plain(line: Line) -> str:
    """A line's text alone, without what would steer a terminal: names in it may be a stranger's."""
    return printable(line if isinstance(line, str) else "".join(text for text, _ in line)).rstrip()


_ASCII = str.maketrans(
    {"█": "#", "▓": "=", "▒": "+", "░": ":", "▚": "%", "▞": "o", "▁": "_", "▂": ".", "▃": "-", "▄": "-", "▅": "=",
     "▆": "=", "▇": "#", "·": "-", "–": "-", "−": "-", "×": "x", "≤": "<=", "≥": ">=", "→": "->", "↓": "v",
     "…": "...", "φ": "phi", "Σ": "sum"}
)  # fmt: skip
"""Signs for terminals whose encoding has no others."""


def in_encoding(text: str, encoding: str | None) -> str:
    """The text as it is, or with signs of ASCII where the encoding lacks one of its signs."""
    try:
        text.encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII)
    return text


def _said(line: Line) -> Line:
    """A line in the chosen language; what stood in columns still does."""
    if isinstance(line, str):
        return said_line(line)
    told = []
    for text, style in line:
        other = said_line(text)
        told.append((padded(other, cells(text)) if text.endswith("  ") else other, style))
    return told


def show(lines: Iterable[Line]) -> None:
    """Print lines to standard output: with colours on a terminal, unless NO_COLOR is set (no-color.org)."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        print(in_encoding("\n".join(plain(_said(line)) for line in lines), sys.stdout.encoding))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        told = _said(line)
        styled = [(told, "")] if isinstance(told, str) else told
        shown = ((in_encoding(printable(text), sys.stdout.encoding), style) for text, style in styled)
        console.print(Text.assemble(*shown))


def columns(
    rows: Sequence[Sequence[str]], *, numbers_from: int = 1, gap: int = 3, left: Collection[int] = ()
) -> list[str]:
    """Rows as aligned columns; those from `numbers_from` on, but for those of `left`, are set to the right.

    A row whose first cell is a name (`AsIs`) becomes a line that stays as it is.
    """
    kinds = [AsIs if row and isinstance(row[0], AsIs) else str for row in rows]
    rows = [[said(cell) for cell in row] for row in rows]
    count = max(len(row) for row in rows)
    widths = [max(cells(row[i]) if i < len(row) else 0 for row in rows) for i in range(count)]
    return [
        kind(
            (" " * gap)
            .join(
                padded(cell, width) if i < numbers_from or i in left else " " * (width - cells(cell)) + cell
                for i, (cell, width) in enumerate(zip(row, widths, strict=False))
            )
            .rstrip()
        )
        for kind, row in zip(kinds, rows, strict=True)
    ]


def fitted(
    rows: Sequence[Sequence[str]], spare: Sequence[str], *, indent: int = 0, numbers_from: int = 1, gap: int = 3
) -> list[str]:
    """Rows as columns that the screen is wide enough for: else without those of `spare`, by their heads, in turn."""
    lines = columns(rows, numbers_from=numbers_from, gap=gap)
    if not spare or max(map(cells, lines), default=0) + indent <= screen_width():
        return lines
    out = list(rows[0]).index(spare[0])
    fewer = [(*row[:out], *row[out + 1 :]) for row in rows]
    return fitted(fewer, spare[1:], indent=indent, numbers_from=numbers_from - (out < numbers_from), gap=2)


def wrapped(pieces: Sequence[str], width: int, *, indent: int = 0, gap: str = "   ") -> list[str]:
    """Short pieces laid out in lines of at most `width`; a piece that is wider ends its lines between words."""
    lines: list[str] = []
    for piece in (said_line(piece, indent) for piece in pieces):
        if lines and cells(lines[-1]) + len(gap) + cells(piece) <= width:
            lines[-1] += gap + piece
            continue
        for part in [piece] if indent + cells(piece) <= width else broken(piece, width - indent):
            lines.append(" " * (indent if lines else 0) + part)
    return lines


def wrapped_text(label: str, text: str, width: int, *, quoted: bool = False) -> list[str]:
    """A sentence in lines of at most `width`, the first after `label`, the others below its first word.

    `quoted`: it stays as it is in every language.
    """
    indent = len(label)
    first, *rest = broken(text if quoted else said(text), width - indent)
    return [padded(said(label.rstrip()), indent) + first, *(" " * indent + line for line in rest)]
