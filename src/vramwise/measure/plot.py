"""A snapshot's window as a picture: bytes over time, stacked by the line of code that asked for them (SVG)."""

from __future__ import annotations

from itertools import pairwise

from vramwise import svg
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
    parts = [svg.text(LEFT, 28, title, size=15), *_axes(top, timeline)]
    floor = [0] * len(columns)
    for i, (stack, sizes) in enumerate(bands):
        ceiling = [low + size for low, size in zip(floor, sizes, strict=True)]
        label = _label(stack) if i < len(stacks) else "everything else"
        parts.append(_area(floor, ceiling, top, COLOURS[i], f"{label}: {format_bytes(max(sizes))} at most"))
        parts.append(_legend(i, label, max(sizes), COLOURS[i]))
        floor = ceiling
    line = [(_x(i, len(columns)), _y(timeline.reserved[at], top)) for i, at in enumerate(columns)]
    parts.append(svg.path(line, "#000", dash="5 3"))
    said = f"- - reserved {format_bytes(timeline.peak_reserved)}"
    parts.append(svg.text(WIDTH - RIGHT + 16, TOP + 24 * (len(bands) + 1), said))
    return svg.document(WIDTH, HEIGHT, parts, title=title)


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


def _axes(top: int, timeline: Timeline) -> list[str]:
    parts = []
    for i in range(5):
        y = _y(top * i // 4, top)
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y))
        parts.append(svg.text(LEFT - 8, y + 4, f"{gib(top * i // 4):.2f} GiB", anchor="end"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    words = f"{timeline.events:,} allocator events, in order; peak {format_bytes(timeline.peak)}"
    return [*parts, svg.text(middle, HEIGHT - 16, words, anchor="middle")]


def _area(low: list[int], high: list[int], top: int, colour: str, title: str) -> str:
    count = len(low)
    forth = [(_x(i, count), _y(value, top)) for i, value in enumerate(high)]
    back = [(_x(i, count), _y(low[i], top)) for i in reversed(range(count))]
    return svg.area([*forth, *back], colour, title=title)


def _legend(row: int, label: str, most: int, colour: str) -> str:
    x, y = WIDTH - RIGHT + 16, TOP + 24 * row
    short = label if len(label) <= 40 else label[:39] + "…"
    return svg.box(x, y, 12, 12, colour) + svg.text(x + 18, y + 11, f"{short} {format_bytes(most)}")


def _x(index: int, count: int) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * index / max(1, count - 1)


def _y(value: int, top: int) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top
