"""The table of errors as a person reads it: plain text that fits the given width."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from vramwise.accuracy.report import Report
from vramwise.accuracy.table import ErrorRow, OomRow
from vramwise.errors import clipped
from vramwise.result import COUNTS, FRACTIONS
from vramwise.units import UNIT_BYTES, format_bytes

SHOWN_UNUSABLE = 10
NO_FIGURE = "–"
MINUS = "−"

_WIDE = ("n", "median", "|median|", "|p90|", "worst", "in interval", "above", "width")
_NARROW = ("n", "median", "|median|", "|p90|", "worst", "inside", "above", "width")
_OOM = ("n", "correct", "false fits", "false OOMs")


def lines(report: Report, width: int = 100, by: str = "engine") -> list[str]:
    """The report as lines of at most `width` columns (80 or more); figures are percent of the measured."""
    table = report.table
    text: list[str] = []
    if table.rows:
        text += _block(by, table.rows, width)
    if table.oom_rows:
        text += [""] if text else []
        text += _oom_block(by, table.oom_rows, width)
        text += _reliability(report)
    text += _remarks(report, width)
    if report.worst:
        text += ["", "worst", *(_cut(line, width) for line in _worst(report))]
    return [_printable(line) for line in text]


def percent(value: float | None, *, signed: bool = False) -> str:
    """A fraction in percent: one decimal (none from 1,000 % on), a real minus sign, "∞" where infinite."""
    if value is None:
        return NO_FIGURE
    decimals = 1 if abs(value) < 10 else 0
    digits = "∞" if math.isinf(value) else f"{abs(value) * 100:,.{decimals}f}"
    if value < 0 and digits != "0.0":
        return MINUS + digits
    return ("+" if signed and digits != "0.0" else "") + digits


def _block(by: str, rows: Sequence[ErrorRow], width: int) -> list[str]:
    groups, cells = [row.group for row in rows], [[row.quantity, *_figures(row)] for row in rows]
    return _grouped(by, groups, cells, ("quantity", *_WIDE), ("quantity", *_NARROW), width)


def _oom_block(by: str, rows: Sequence[OomRow], width: int) -> list[str]:
    cells = [
        [
            "oom",
            _count(row.count, row.measured),
            f"{percent(row.correct / row.count)} %" if row.count else NO_FIGURE,
            str(len(row.false_fits)),
            str(len(row.false_ooms)),
        ]
        for row in rows
    ]
    heads = ("verdict", *_OOM)
    return _grouped(by, [row.group for row in rows], cells, heads, heads, width)


def _reliability(report: Report) -> list[str]:
    """How often runs fitted of which a probability was said, and the Brier score of all of them."""
    found = report.reliability
    if not found.count:
        return []
    cells = [
        [
            f"{percent(one.low)} – {percent(one.high)} %",
            str(one.count),
            f"{percent(one.said)} %",
            f"{percent(one.fitted)} %",
        ]
        for one in found.bins
    ]
    return [
        "",
        *_aligned([["said to fit with", "n", "mean", "fitted"], *cells], 1, gap=3),
        f"Brier score {found.brier:.3f} ({found.count:,} runs; 0 is best, 0.25 is a coin)",
    ]


def _figures(row: ErrorRow) -> list[str]:
    coverage = NO_FIGURE if row.coverage is None else f"{row.coverage * 100:.0f} %"
    return [
        _count(row.count, row.measured),
        percent(row.median_error, signed=True),
        percent(row.median_absolute_error),
        percent(row.p90_absolute_error),
        percent(row.worst.error if row.worst else None, signed=True),
        coverage,
        NO_FIGURE if row.above is None else f"{row.above * 100:.0f} %",
        f"{percent(row.median_width)} %" if row.median_width is not None else NO_FIGURE,
    ]


def _count(compared: int, measured: int) -> str:
    return str(measured) if compared == measured else f"{compared}/{measured}"


def _grouped(
    by: str,
    groups: Sequence[str],
    cells: Sequence[Sequence[str]],
    wide: Sequence[str],
    narrow: Sequence[str],
    width: int,
) -> list[str]:
    """The group as the first column where the width allows it, else as a line of its own above its rows."""
    full = _aligned([[by, *wide], *([group, *row] for group, row in zip(groups, cells, strict=True))], 2, gap=3)
    if max(map(len, full)) <= width:
        return full
    header, *body = _aligned([list(narrow), *cells], 1, gap=1)
    text = [" " + header]
    for group, members in groupby(zip(groups, body, strict=True), key=lambda pair: pair[0]):
        text += [_cut(group, width), *(" " + line for _, line in members)]
    return text


def _aligned(rows: Sequence[Sequence[str]], left: int, gap: int) -> list[str]:
    """Columns of equal width: the first `left` ones flush left, the figures flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        (" " * gap)
        .join(
            cell.ljust(size) if index < left else cell.rjust(size)
            for index, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        .rstrip()
        for row in rows
    ]


def _remarks(report: Report, width: int) -> list[str]:
    """What the table does not show: values without an estimate, failed estimates, unusable lines."""
    table = report.table
    text = [f"{_number(len(report.outcomes), 'case')}; error = (estimate {MINUS} measured) / measured, in %"]
    missing: Counter[str] = Counter()
    for row in table.rows:
        missing[row.quantity] += row.missing
    missing["oom"] = sum(row.missing for row in table.oom_rows)
    if missing.total():
        named = ", ".join(f"{quantity} {count}" for quantity, count in missing.most_common() if count)
        text += _wrapped(f"missing: the estimate lacks {missing.total():,} of the measured values: {named}", width)
    if table.failures:
        text.append(f"not estimated: {_number(sum(f.count for f in table.failures), 'case')}")
        for f in table.failures:
            text += _wrapped(f"  {f.type} {f.count:,}, e.g. {f.case.id}: {clipped(f.message, 300)}", width)
    if report.unusable:
        text.append(f"unusable: {_number(len(report.unusable), 'line')}")
        for line in report.unusable[:SHOWN_UNUSABLE]:
            text += _wrapped(f"  {line}", width)
        if len(report.unusable) > SHOWN_UNUSABLE:
            text.append(f"  and {len(report.unusable) - SHOWN_UNUSABLE:,} more (--json lists all)")
    return ["", *text] if table.rows or table.oom_rows else text


def _worst(report: Report) -> list[str]:
    """The largest errors, two lines each, and as many wrong verdicts, the dangerous ones first."""
    text: list[str] = []
    for c in report.worst:
        unit = _unit(max(c.measured, c.expected))
        measured, low, expected, high = (
            _amount(c.quantity, value, unit) for value in (c.measured, c.low, c.expected, c.high)
        )
        interval = f" ({low.removesuffix(f' {unit}')} – {high})" if low != high else ""
        text += [
            f"{percent(c.error, signed=True) + ' %':>9}  {c.quantity}  {c.case.id}",
            f"    {c.case.engine}: measured {measured}, estimated {expected}{interval}",
        ]
    rows = report.table.oom_rows
    wrong = [("false fit", oom) for row in rows for oom in row.false_fits]
    wrong += [("false OOM", oom) for row in rows for oom in row.false_ooms]
    shown = wrong[: len(report.worst)]
    return text + [f"{verdict}  {oom.case.engine}  {oom.case.id}" for verdict, oom in shown]


def _unit(largest: float) -> str:
    """GiB, or a smaller unit where GiB would show nothing."""
    return next((unit for unit in ("GiB", "MiB") if largest >= UNIT_BYTES[unit]), "B")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _amount(quantity: str, value: float, unit: str) -> str:
    if quantity in FRACTIONS:
        return f"{value:,.2f}"
    return f"{value:,.0f}" if quantity in COUNTS else format_bytes(round(value), unit)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def _printable(line: str) -> str:
    """Names come from files: no escape sequence and no half character of theirs reaches a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def _wrapped(line: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False)
