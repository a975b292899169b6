"""A sweep as a picture: a line for each value of the first key over those of the second, and the card's limit."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from vramwise import svg
from vramwise.cli.sweep import Axis, Point
from vramwise.errors import UsageError, clipped
from vramwise.files import write_file
from vramwise.result import VERDICT_WORDS
from vramwise.units import gib

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 78, 60
COLOURS = svg.OKABE_ITO
DASHES = ("", "7 3", "2 3", "9 3 2 3")
MOST_LINES = len(COLOURS) * len(DASHES)
TICKS = 6
HIGHEST = 4.0
"""Times the card's memory; lines that go on leave the picture there."""
_WIDEST = 125  # signs of a line below the title
_STEPS = (1, 2, 2.5, 5, 10)


def save(path: str, drawn: str) -> None:
    """Write the picture as its name's ending says. Raises UsageError for another ending or a missing
    converter, SourceError where it cannot be written."""
    ending = Path(path).suffix.lower()
    if ending not in (".svg", ".png"):
        raise UsageError(f'--plot: expected a name that ends in .svg or .png, got "{clipped(path)}"')
    write_file(path, drawn if ending == ".svg" else _png(drawn))


def _png(drawn: str) -> bytes:
    try:
        import cairosvg
    except (ImportError, OSError):  # OSError: the package is there, the cairo library is not
        raise UsageError(
            "--plot FILE.png needs cairosvg: pip install 'vramwise[plot]'; FILE.svg needs nothing"
        ) from None
    return bytes(cairosvg.svg2png(bytestring=drawn.encode(), scale=2))


def picture(
    title: str, axes: Sequence[Axis], points: Sequence[Point], usable_bytes: int | None, settings: str = ""
) -> str:
    """The SVG text; `settings` stands below the title. Raises UsageError for more lines than can be told apart."""
    lines = axes[0].labels if len(axes) == 2 else ("",)
    across = axes[-1]
    if len(lines) > MOST_LINES:
        raise UsageError(f"--plot: {len(lines)} lines are too many to tell apart; expected at most {MOST_LINES}")
    sizes = [gib(point.needed_bytes) for point in points if point.needed_bytes is not None]
    limit = gib(usable_bytes) if usable_bytes is not None else None
    largest = max([*sizes, *([limit * 1.05] if limit else [])], default=1.0)
    top, step = _scale(min(largest, HIGHEST * limit) if limit else largest)
    y_of = _Vertical(top)
    parts = [_frame(title, across, y_of, step), svg.text(LEFT, 44, clipped(settings, _WIDEST), size=12)]
    if limit is not None:
        parts.append(_limit(limit, y_of))
    for i, label in enumerate(lines):
        row = points[i * len(across.labels) : (i + 1) * len(across.labels)]
        parts.append(_line(i, row, y_of, f"{axes[0].key} {label}" if label else ""))
    parts += _marks({point.word for point in points if point.word is not None})
    parts.insert(1, f'<clipPath id="in"><path d="M0 {TOP - 6}H{WIDTH}V{HEIGHT}H0z"/></clipPath>')
    return svg.document(WIDTH, HEIGHT, parts, font_size=13)


class _Vertical:
    """Where a number of GiB stands."""

    def __init__(self, top: float) -> None:
        self.top = top

    def __call__(self, size: float) -> float:
        return HEIGHT - BOTTOM - size / self.top * (HEIGHT - TOP - BOTTOM)


def _scale(largest: float) -> tuple[float, float]:
    """The top of the vertical axis and the distance of its ticks."""
    rough = max(largest, 1e-3) / TICKS
    power = 10.0 ** len(str(int(rough))) / 10 if rough >= 1 else 0.1 if rough >= 0.1 else 0.01
    step = next((power * s for s in _STEPS if power * s >= rough), power * 10)
    count = int(-(-largest // step)) or 1
    return count * step, step


def _x(index: int, count: int) -> float:
    inner = WIDTH - LEFT - RIGHT
    return LEFT + inner * ((index + 0.5) / count if count == 1 else index / (count - 1) * 0.94 + 0.03)


def _frame(title: str, across: Axis, y_of: _Vertical, step: float) -> str:
    parts = [svg.text(LEFT, 26, title, size=15, bold=True)]
    ticks = round(y_of.top / step)
    decimals = 0 if step >= 1 and step == int(step) else 2 if step >= 0.05 or round(step, 2) == step else 3
    for tick in range(ticks + 1):
        y = y_of(tick * step)
        parts.append(svg.line(LEFT, y, WIDTH - RIGHT, y))
        parts.append(svg.text(LEFT - 8, y + 4, f"{tick * step:,.{decimals}f}", anchor="end"))
    for i, shown in enumerate(across.shown):
        parts.append(svg.text(_x(i, len(across.labels)), HEIGHT - BOTTOM + 20, shown, anchor="middle"))
    parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, across.key, anchor="middle"))
    parts.append(svg.text(LEFT, TOP - 10, "GiB needed", anchor="middle"))
    return "\n".join(parts)


def _limit(limit: float, y_of: _Vertical) -> str:
    y = y_of(limit)
    line = svg.line(LEFT, y, WIDTH - RIGHT, y, "#b00020", width=2, dash="8 4")
    return line + "\n" + svg.text(WIDTH - RIGHT + 8, y + 4, f"usable {limit:,.2f} GiB", fill="#b00020")


def _marks(words: Collection[str]) -> list[str]:
    """What the marks of points mean, of those that stand in the picture."""
    parts, start = [], WIDTH - RIGHT + 8
    shown = [word for word in VERDICT_WORDS if word in words] if len(words) > 1 or "fits" not in words else []
    for i, word in enumerate(shown):
        y = HEIGHT - BOTTOM - 20 * (len(shown) - 1 - i)
        parts += [_mark(start + 11, y, word, "#444"), svg.text(start + 28, y + 4, word)]
    return parts


def _mark(x: float, y: float, word: str | None, colour: str) -> str:
    """Filled where it fits (or there is no card), pale where it is tight, hollow where it does not fit."""
    fill = "#fff" if word == "does not fit" else colour
    pale = ' fill-opacity="0.35"' if word == "tight" else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}"{pale} stroke="{colour}" stroke-width="2"/>'


def _line(index: int, row: Sequence[Point], y_of: _Vertical, name: str) -> str:
    """A line through the points that have an answer."""
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS)]
    places = [
        (_x(j, len(row)), y_of(gib(point.needed_bytes)), point.word)
        for j, point in enumerate(row)
        if point.needed_bytes is not None
    ]
    if not places:
        return ""
    through = [(x, y) for x, y, _ in places]
    parts = [svg.path(through, colour, width=2, dash=dash, more=' clip-path="url(#in)"')]
    parts += [_mark(x, y, word, colour) for x, y, word in places if y >= TOP - 6]
    if name:
        y = TOP + 10 + 20 * index
        start = WIDTH - RIGHT + 8
        parts.append(svg.line(start, y, start + 22, y, colour, width=2, dash=dash))
        parts.append(svg.text(start + 28, y + 4, name))
    return "\n".join(parts)
