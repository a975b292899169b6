"""A snapshot's window as a picture: bytes over time, stacked by the line of code that asked for them (SVG)."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from vramwise.measure.causes import kind_of
from vramwise.measure.snapshot import Stack
from vramwise.measure.timeline import Timeline, grouped
from vramwise.units import format_bytes, gib

WIDTH, HEIGHT = 1200, 520
LEFT, RIGHT, TOP, BOTTOM = 90, 360, 50, 50
BANDS = 8
MOST_COLUMNS = 600
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#dd8844", "#117733", "#bbbbbb")
"""Told apart with any colour vision (Paul Tol's bright scheme, two more, and grey for the rest)."""


def timeline_svg(timeline: Timeline, title: str) -> str:
    """The window of one device as one SVG file: largest stacks as bands, reserved memory as a line above."""
    columns = _columns(timeline)
    top = max(timeline.peak, timeline.peak_reserved, 1)
    stacks = [group.stack for group in grouped(timeline.alive_at(timeline.peak_at))[:BANDS]]
    bands = _bands(timeline, stacks, columns)
    parts = [_head(title), *_axes(top, timeline)]
    floor = [0] * len(columns)
    for i, (stack, sizes) in enumerate(bands):
        ceiling = [low + size for low, size in zip(floor, sizes, strict=True)]
        label = _label(stack) if i < len(stacks) else "everything else"
        parts.append(_area(floor, ceiling, top, COLOURS[i], f"{label}: {format_bytes(max(sizes))} at most"))
        parts.append(_legend(i, label, max(sizes), COLOURS[i]))
        floor = ceiling
    line = " ".join(f"{_x(i, len(columns)):.1f},{_y(timeline.reserved[at], top):.1f}" for i, at in enumerate(columns))
    parts.append(f'<polyline points="{line}" fill="none" stroke="#000" stroke-dasharray="5 3"/>')
    parts.append(
        _text(WIDTH - RIGHT + 16, TOP + 24 * (len(bands) + 1), f"- - reserved {format_bytes(timeline.peak_reserved)}")
    )
    return "\n".join((*parts, "</svg>")) + "\n"


def _columns(timeline: Timeline) -> list[int]:
    """At most MOST_COLUMNS places of the window; of the entries of one column the fullest, so that no peak is lost."""
    count = len(timeline.live)
    if count <= MOST_COLUMNS:
        return list(range(count))
    edges = [i * count // MOST_COLUMNS for i in range(MOST_COLUMNS + 1)]
    return [max(range(low, high), key=timeline.live.__getitem__) for low, high in pairwise(edges)]


def _bands(timeline: Timeline, stacks: list[Stack], columns: list[int]) -> list[tuple[Stack, list[int]]]:
    """Bytes of each stack in each column, the rest last."""
    order = {stack: i for i, stack in enumerate(stacks)}
    changes = [[0] * (len(timeline.live) + 1) for _ in range(len(stacks) + 1)]
    for life in timeline.lives:
        row = changes[order.get(life.stack, len(stacks))]
        row[life.start] += life.size
        row[min(life.end, len(timeline.live))] -= life.size
    found = []
    for i, row in enumerate(changes):
        total, running = 0, []
        for change in row:
            total += change
            running.append(total)
        found.append((stacks[i] if i < len(stacks) else (), [running[at] for at in columns]))
    return found


def _label(stack: Stack) -> str:
    if not stack:
        return "stack not recorded"
    own = next((frame for frame in stack if "/torch/" not in frame.filename), stack[0])
    kind = kind_of(stack).name
    return f"{own.filename.rsplit('/', 1)[-1]}:{own.line} {own.name} ({kind})"


def _head(title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{_text(LEFT, 28, title, size=15)}'
    )


def _axes(top: int, timeline: Timeline) -> list[str]:
    parts = []
    for i in range(5):
        y = _y(top * i // 4, top)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{gib(top * i // 4):.2f} GiB", anchor="end"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    words = f"{timeline.events:,} allocator events, in order; peak {format_bytes(timeline.peak)}"
    return [*parts, _text(middle, HEIGHT - 16, words, anchor="middle")]


def _area(low: list[int], high: list[int], top: int, colour: str, title: str) -> str:
    count = len(low)
    forth = [f"{_x(i, count):.1f},{_y(value, top):.1f}" for i, value in enumerate(high)]
    back = [f"{_x(i, count):.1f},{_y(low[i], top):.1f}" for i in reversed(range(count))]
    return f'<polygon points="{" ".join(forth + back)}" fill="{colour}"><title>{escape(title)}</title></polygon>'


def _legend(row: int, label: str, most: int, colour: str) -> str:
    x, y = WIDTH - RIGHT + 16, TOP + 24 * row
    short = label if len(label) <= 40 else label[:39] + "…"
    words = _text(x + 18, y + 11, f"{short} {format_bytes(most)}")
    return f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>{words}'


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * index / max(1, count - 1)


def _y(value: int, top: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top
