"""One estimate as a picture: a bar of terms for each moment, and the card's limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vramwise import svg
from vramwise.cli.screens.estimate import card_name, interval_text, model_title, settings_summary
from vramwise.colours import term_colours, verdict_colour
from vramwise.errors import clipped
from vramwise.result import Phase, Result
from vramwise.units import gib

WIDTH, LEFT, RIGHT, TOP = 860, 130, 90, 96
ROW, BAR = 34, 22
MOST_TERMS = 9
"""In the legend; what is beyond them is `other`."""
_LEGEND_COLUMNS, _LEGEND_ROW = 3, 22
_WIDEST = 110  # signs of a line


def answer_picture(result: Result, labels: Mapping[str, str] | None = None) -> str:
    """The SVG text: the answer, a row for each moment in order, the terms' colours below.

    `labels` are words in another language, by the program's own.
    """
    labels = labels or {}
    names = _largest_terms(result.phases)
    usable = result.capacity.usable_bytes if result.capacity is not None else None
    need = result.quantities.get("total_needed")
    whole = max([phase.bytes for phase in result.phases] + [usable or 0, need.high if need is not None else 0, 1])
    across = (WIDTH - LEFT - RIGHT) / (whole * 1.02)
    bottom = TOP + ROW * len(result.phases)
    parts = _heading(result, labels)
    for row, phase in enumerate(result.phases):
        parts += _moment(phase, TOP + ROW * row, names, across, labels, peak=phase.name == result.peak_phase)
    if usable is not None:
        parts += _limit(usable, LEFT + usable * across, bottom, labels)
    parts += _legend(names, bottom + 44, labels)
    return svg.document(WIDTH, bottom + 44 + _LEGEND_ROW * -(-len(names) // _LEGEND_COLUMNS), parts, font_size=13)


def _largest_terms(phases: Sequence[Phase]) -> tuple[str, ...]:
    """Names of the terms that are largest at any moment; what is beyond the legend is `other`."""
    largest: dict[str, int] = {}
    for phase in phases:
        for term in phase.components.children:
            if term.bytes > 0:
                largest[term.name] = max(term.bytes, largest.get(term.name, 0))
    names = sorted(largest, key=lambda name: -largest[name])
    if len(names) <= MOST_TERMS:
        return tuple(names)
    return (*(name for name in names[: MOST_TERMS - 1] if name != "other"), "other")


def _heading(result: Result, labels: Mapping[str, str]) -> list[str]:
    card = card_name(result.capacity.gpu) if result.capacity is not None else ""
    title = " · ".join(word for word in (model_title(result.model.id), card) if word)
    parts = [
        svg.text(20, 28, clipped(title, _WIDEST), size=16, bold=True),
        svg.text(20, 50, clipped(" · ".join(settings_summary(result)), _WIDEST), size=12, fill="#555"),
    ]
    need = result.quantities.get("total_needed")
    if need is not None:
        words = f"{labels.get('needs', 'needs')} {gib(int(need.expected)):,.2f} GiB{interval_text(need)}"
        parts.append(svg.text(20, 76, words, size=15, bold=True))
    if result.verdict is not None:
        word = result.verdict.word
        said, colour = labels.get(word, word), verdict_colour(word)
        parts.append(svg.text(WIDTH - RIGHT, 76, said, anchor="end", size=15, fill=colour, bold=True))
    parts.append(svg.text(WIDTH - 20, TOP - 8, "GiB", anchor="end", size=12, fill="#555"))
    return parts


def _moment(
    phase: Phase, y: float, names: Sequence[str], across: float, labels: Mapping[str, str], *, peak: bool
) -> list[str]:
    """One row: the moment's name, its terms in the legend's order, its size."""
    sizes = dict.fromkeys(names, 0)
    for term in phase.components.children:
        if term.bytes > 0:
            sizes[term.name if term.name in sizes else "other"] += term.bytes
    parts = [svg.text(LEFT - 10, y + BAR - 6, clipped(labels.get(phase.name, phase.name), 18), anchor="end", bold=peak)]
    x, colours = float(LEFT), term_colours(names)
    for name in names:
        width = sizes[name] * across
        if width > 0:
            title = f"{labels.get(name, name)} {gib(sizes[name]):,.2f} GiB"
            parts.append(svg.box(x, y, width, BAR, colours[name], title=title, stroke="#fff"))
        x += width
    return [*parts, svg.text(WIDTH - 20, y + BAR - 6, f"{gib(phase.bytes):,.2f}", anchor="end", bold=peak)]


def _limit(usable: int, x: float, bottom: float, labels: Mapping[str, str]) -> list[str]:
    words = f"{labels.get('usable', 'usable')} {gib(usable):,.2f} GiB"
    line = svg.line(x, TOP - 6, x, bottom, "#b00020", width=2, dash="6 4")
    return [line, svg.text(x, bottom + 16, words, anchor="end" if x > WIDTH / 2 else "start", fill="#b00020")]


def _legend(names: Sequence[str], y: float, labels: Mapping[str, str]) -> list[str]:
    parts, colours = [], term_colours(names)
    for i, name in enumerate(names):
        x, row = 20 + (i % _LEGEND_COLUMNS) * 280, y + i // _LEGEND_COLUMNS * _LEGEND_ROW
        parts += [
            svg.box(x, row - 11, 12, 12, colours[name]),
            svg.text(x + 18, row, clipped(labels.get(name, name), 36)),
        ]
    return parts
