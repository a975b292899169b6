"""A dry run on one screen, as an estimate is, with who allocated the peak; and a sweep of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise.cli.screens.estimate import estimate_screen, model_title, settings_summary
from vramwise.cli.screens.measured import unit_of
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped, wrapped_text
from vramwise.measure.sweep import Line as FittedLine
from vramwise.result import Node, Result
from vramwise.units import format_bytes, gib

MOST_PLACES = 8
_WIDEST = 52


def dry_run_screen(result: Result) -> list[Line]:
    """The lines of `vramwise dry-run MODEL`."""
    lines = estimate_screen(result)
    *above, empty, last = lines
    return [*above, *_places(result), empty, last]


def _places(result: Result) -> list[Line]:
    """The largest places of code at the peak: bytes, operation, module, line."""
    peak = next((phase for phase in result.phases if phase.name == result.peak_phase), None)
    if peak is None:
        return []
    found: list[tuple[str, Node]] = []
    for term in peak.components.children:
        found += [(term.name, part) for part in term.children if "count" in part.inputs]
    found.sort(key=lambda pair: -pair[1].bytes)
    if not found:
        return []
    rows = [["who allocated the peak", "GiB", "times", ""]]
    for name, part in found[:MOST_PLACES]:
        line = "/".join(part.source.split("/")[-2:])
        rows.append([f"  {name}: {part.name}"[:_WIDEST], f"{gib(part.bytes):,.2f}", f"{part.inputs['count']:,}", line])
    return ["", *(line[: screen_width()] for line in columns(rows, left={3}))]


def dry_sweep_screen(
    rows: Sequence[tuple[Mapping[str, int], Result, Result | None]], line: FittedLine | None, planned: int, stopped: str
) -> list[Line]:
    """A row a run, then the line through the peaks with its residuals."""
    width = screen_width()
    first = rows[0][1]
    keys = list(rows[0][0])
    unit = unit_of([phase.bytes for _, result, _ in rows for phase in result.phases])
    table = [[*keys, "estimated", "dry run", "difference", "residual", "moment"]]
    residuals = iter(line.residuals if line else ())
    for sizes, result, estimated in rows:
        peak = int(result.quantities["peak_allocated"].expected)
        other = estimated.quantities.get("peak_allocated") if estimated is not None else None
        left = next(residuals, None)
        table.append([
            *(f"{sizes[key]:,}" for key in keys), "–" if other is None else _size(int(other.expected), unit),
            _size(peak, unit), "–" if other is None else f"{100 * (other.expected / peak - 1):+.2f} %",
            "" if left is None else _size(round(left), unit), str(result.peak_phase),
        ])  # fmt: skip
    words = [model_title(first.model.id), *settings_summary(first)]
    lines: list[Line] = [*wrapped(words, width, gap=" · "), "", *columns(table, numbers_from=0, left={len(keys) + 4})]
    if line is not None:
        said = f"{format_bytes(round(line.fixed), 'auto')} + {format_bytes(round(line.slope), 'auto')} · {line.x}"
        worst = format_bytes(round(line.largest_residual), "auto")
        text = f"{said}; largest residual {worst}, R² {line.r_squared:.4f}"
        lines += ["", *wrapped_text("line        ", text, width)]
    if stopped:
        lines += ["", *wrapped_text("stopped     ", f"{len(rows)} of {planned} runs: {stopped}", width)]
    return [*lines, "", f"sizes in {unit}: peak allocated, without the CUDA context"]


def _size(size: int, unit: str) -> str:
    return format_bytes(size, unit, 3).partition(" ")[0]
