"""The screen of `vramwise compare`: printed, predicted, difference and what explains it, line by line."""

from __future__ import annotations

from vramwise.cli.screens.estimate import model_title, settings_summary
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped, wrapped_text
from vramwise.interop.logs import Comparison, Row
from vramwise.measure.two_results import PEAK, Term, TwoResults
from vramwise.result import Result
from vramwise.units import GIB, format_bytes, gib

LABELS = {
    "weights": "model weights",
    "weights_gpu": "weights on GPU",
    "weights_host": "weights on host",
    "activation_peak": "activation peak",
    "non_torch": "non-torch",
    "kv_cache_bytes": "KV cache",
    "kv_cache_blocks": "KV cache blocks",
    "kv_cache_tokens": "KV cache tokens",
    "max_concurrency": "maximum concurrency",
    "max_seq": "longest request",
    "cuda_graph": "CUDA graphs",
    "recurrent_state_bytes": "recurrent state",
    "compute_buffer": "compute buffer",
    "host_buffer": "host buffer",
    "output_buffer": "output buffer",
}
_COUNTS = frozenset({"kv_cache_blocks", "kv_cache_tokens", "max_seq"})


def compare_screen(comparison: Comparison) -> list[Line]:
    """A table of rows, the terms behind those that differ, and what the log did not hold."""
    width = screen_width()
    reading, result = comparison.reading, comparison.result
    words = [model_title(result.model.id), *settings_summary(result)]
    read = f"{reading.lines:,} {'line' if reading.lines == 1 else 'lines'} read"
    lines: list[Line] = [*wrapped(words, width, gap=" · "), read, ""]
    if comparison.rows:
        cells = [["", "printed", "predicted", "difference"], *(_cells(row) for row in comparison.rows)]
        lines += columns(cells)
        if any(row.predicted is not None and not row.agrees for row in comparison.rows):
            lines.append("* outside the 90 % interval")
        lines.append("")
        for row in comparison.rows:
            if row.explanation and (row.error or row.predicted is None):
                lines += wrapped_text(f"{LABELS[row.quantity]:<20}", row.explanation, width)
    else:
        lines.append("the log holds none of the lines that are compared")
    for label in reading.missing:
        lines += wrapped_text(f"{'not found':<20}", label, width)
    for note in comparison.notes:
        lines += wrapped_text(f"{'note':<20}", note, width)
    return lines


def _cells(row: Row) -> list[str]:
    unit = "GiB" if abs(row.printed.value) >= GIB // 10 else "MiB"
    return [LABELS[row.quantity], _value(row, row.printed.value, unit), _predicted(row, unit), _difference(row)]


def _predicted(row: Row, unit: str) -> str:
    if row.predicted is None:
        return "–"
    text = _value(row, row.predicted.expected, unit)
    low, high = (_value(row, end, unit) for end in (row.predicted.low, row.predicted.high))
    return text if low == high else f"{text} ({low.removesuffix(f' {unit}')} – {high})"


def _difference(row: Row) -> str:
    if row.error is None:
        return "–"
    text = f"{100 * row.error:+.1f} %".replace("-", "−")
    return text if row.agrees else f"{text} *"


def _value(row: Row, value: float, unit: str) -> str:
    if row.quantity in _COUNTS:
        return f"{round(value):,}"
    if row.quantity == "max_concurrency":
        return f"{value:,.2f}"
    return format_bytes(round(value), unit)


def two_results_screen(found: TwoResults, a: Result, b: Result) -> list[Line]:
    """The lines of `vramwise compare A B`: every moment that both have, the terms of the largest."""
    width = screen_width()
    table = [["", "A", "B", "A − B", ""], *(_row(moment, moment.path) for moment in found.moments)]
    terms = sorted(found.of(PEAK), key=lambda term: -abs(term.difference))
    table += [_row(term, "  " + term.path.partition("/")[2]) for term in terms]
    names = [f"{label}: {one.model.id}, largest at {one.peak_phase}" for label, one in (("A", a), ("B", b))]
    said = found.explanation
    because = wrapped_text("because     ", said, width) if said else ["every term of every moment is the same"]
    return [*names, "", *columns(table), "", *because, "", "sizes in GiB"]


def _row(term: Term, name: str) -> list[str]:
    relative = f"{100 * term.difference / term.b:+.2f} %" if term.b else ""
    return [name, f"{gib(term.a):,.3f}", f"{gib(term.b):,.3f}", f"{gib(term.difference):+,.3f}", relative]
