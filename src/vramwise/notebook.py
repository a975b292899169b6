"""A result as notebooks show it: one self-contained block of HTML, in the colours of the page around it, and rows.

Nothing is loaded and nothing runs: no script, no font, no address. Every word is escaped. Text takes the notebook's own
colour and lines are half transparent, so that light and dark themes read alike; hatching and the legend say what colour
alone would.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape as escaped
from typing import TYPE_CHECKING

from vramwise.errors import printable
from vramwise.units import format_bytes, gib

if TYPE_CHECKING:
    from vramwise.result import Node, Quantity, Result

COLOURS = ("#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#999999")  # Okabe and Ito 2008
_COUNTS = frozenset({"params", "kv_cache_tokens", "kv_cache_blocks", "max_batch", "max_seq", "max_concurrency", "oom"})
_LINE = "1px solid rgba(128,128,128,.4)"
_CELL = f"padding:2px 10px;border-bottom:{_LINE};text-align:"
_MOST_NOTES = 12


def rows_of(result: Result) -> list[dict[str, object]]:
    """Every term of every moment as one flat row: path, bytes, low, high, kind, formula, source.

    A moment is the first word of its terms' paths (`decode/weights/attention`); rows of one depth below a path add up
    to its bytes.
    """
    return [row for phase in result.phases for row in _rows(phase.components, phase.name)]


def _rows(node: Node, path: str) -> Iterator[dict[str, object]]:
    yield {
        "path": path, "bytes": node.bytes, "low": node.low, "high": node.high, "kind": node.kind,
        "formula": node.formula, "source": node.source,
    }  # fmt: skip
    for child in node.children:
        yield from _rows(child, f"{path}/{child.name}")


def html_of(result: Result) -> str:
    """The answer, the bar of the peak, its terms, the counters and the notes."""
    peak = next((phase for phase in result.phases if phase.name == result.peak_phase), None)
    parts = [_heading(result)]
    if peak is not None:
        terms = _terms(peak.components)
        cards = max(1, sum(rank.name.startswith("GPU ") for rank in result.ranks))  # llama.cpp's moments are sums
        capacity = result.capacity.usable_bytes * cards if result.capacity is not None else None
        parts += [_bar(terms, capacity), _terms_table(peak.name, terms, peak.bytes)]
    parts += [_counters(result), _notes(result)]
    return f'<div style="font-family:sans-serif;font-size:13px;max-width:760px">{"".join(parts)}</div>'


def _text(words: str) -> str:
    return escaped(printable(words))


def _heading(result: Result) -> str:
    scenario = result.scenario
    card = result.capacity.gpu if result.capacity is not None and result.capacity.gpu else scenario.get("gpu")
    words = [result.model.id, scenario.get("task"), card]
    title = " · ".join(_text(str(word)) for word in words if word)
    needed = result.needed
    spread = f" ({gib(int(needed.low)):,.2f} – {gib(int(needed.high)):,.2f})" if needed.low != needed.high else ""
    said = f"needs <b>{format_bytes(int(needed.expected))}</b>{spread}"
    if result.capacity is not None:
        said += f" of {format_bytes(result.capacity.usable_bytes)} usable"
    if result.verdict is not None:
        said += f": <b>{_text(result.verdict.word)}</b>"
    return f'<div style="font-weight:bold">{title}</div><div style="margin:2px 0 8px">{said}</div>'


def _terms(peak: Node) -> list[Node]:
    return sorted((child for child in peak.children if child.bytes), key=lambda child: -child.bytes) or [peak]


def _bar(terms: list[Node], capacity: int | None) -> str:
    """Blocks to the scale of the card; the line stands where it ends."""
    used = sum(term.bytes for term in terms)
    full = max(used, capacity or 0) or 1
    blocks = "".join(
        f'<span title="{_text(term.name)} {format_bytes(term.bytes)}" style="display:inline-block;height:18px;'
        f'width:{100 * term.bytes / full:.3f}%;background:{_colour(i)}"></span>'
        for i, term in enumerate(terms)
    )
    edge = ""
    if capacity is not None:
        edge = (
            f'<span title="usable {format_bytes(capacity)}" style="position:absolute;top:-3px;height:24px;'
            f'left:{100 * capacity / full:.3f}%;border-left:2px solid currentColor"></span>'
        )
    return (
        f'<div style="position:relative;white-space:nowrap;font-size:0;border:{_LINE};margin:4px 0 8px" role="img" '
        f'aria-label="{format_bytes(used)} used">{blocks}{edge}</div>'
    )


def _colour(i: int) -> str:
    return COLOURS[min(i, len(COLOURS) - 1)]


def _terms_table(moment: str, terms: list[Node], total: int) -> str:
    head = f"largest moment: {_text(moment)}"
    rows = [
        (
            f'<span style="color:{_colour(i)}">■</span> {_text(term.name)}', gib(term.bytes),
            _between(term.low, term.bytes, term.high), term.kind,
        )
        for i, term in enumerate(terms)
    ]  # fmt: skip
    body = "".join(
        f"<tr><td style='{_CELL}left'>{name}</td><td style='{_CELL}right'>{size:,.2f}</td>"
        f"<td style='{_CELL}right'>{between}</td><td style='{_CELL}left'>{_text(kind)}</td></tr>"
        for name, size, between, kind in rows
    )
    return (
        f"<table style='border-collapse:collapse'><tr><th style='{_CELL}left'>{head}</th>"
        f"<th style='{_CELL}right'>GiB</th><th style='{_CELL}right'>90 %</th><th style='{_CELL}left'>known</th></tr>"
        f"{body}<tr><td style='{_CELL}left'><b>in all</b></td><td style='{_CELL}right'><b>{gib(total):,.2f}</b></td>"
        f"<td style='{_CELL}right'></td><td style='{_CELL}left'></td></tr></table>"
    )


def _between(low: float, expected: float, high: float) -> str:
    return "" if low == expected == high else f"{gib(int(low)):,.2f} – {gib(int(high)):,.2f}"


def _counters(result: Result) -> str:
    shown = (f"{_text(name.replace('_', ' '))} {_counter(name, q)}" for name, q in result.quantities.items())
    return f'<div style="margin-top:8px">{" · ".join(shown)}</div>'


def _counter(name: str, quantity: Quantity) -> str:
    value = quantity.expected
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _COUNTS:
        return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
    return format_bytes(int(value))


def _notes(result: Result) -> str:
    texts = [*(result.verdict.reasons if result.verdict is not None else ()), *result.notes]
    left = len(texts) - _MOST_NOTES
    more = f"<li>and {left} more: result.notes</li>" if left > 0 else ""
    items = "".join(f"<li>{_text(text)}</li>" for text in texts[:_MOST_NOTES])
    return f'<ul style="margin:8px 0 0;padding-left:18px;opacity:.8">{items}{more}</ul>' if texts else ""
