"""A sweep as a grid: what every combination needs, and what fits."""

from __future__ import annotations

from collections.abc import Sequence

from vramwise.cli.screens.estimate import card_name, model_title, settings_summary
from vramwise.cli.screens.paint import Line, Segment, screen_width, wrapped, wrapped_text
from vramwise.cli.sweep import Axis, Point
from vramwise.result import Result
from vramwise.units import format_bytes, gib

NO_ANSWER = "–"
TOO_LARGE = "×"
TIGHT = "~"
_GAP = 2
_MARKS = {
    "micro_batch_size": " tokens", "sequence_length": " tokens", "checkpointing": "checkpointing ",
    "lora_rank": "LoRA r=", "method": "trainable,", "max_model_len": "context ", "n_ctx": "context ",
    "batch_size": "batch ", "prompt_tokens": "prompt ", "new_tokens": " new tokens", "tensor_parallel_size": "TP ",
}  # fmt: skip
"""What stands in the word of the summary that shows a key."""


def grid_screen(base: Result, axes: Sequence[Axis], points: Sequence[Point]) -> list[Line]:
    """Rows are the first key's values, columns the second's; with one key a row a value."""
    width = screen_width()
    swept = {axis.key for axis in axes}
    title = title_of(base, swept)
    lines: list[Line] = list(
        wrapped([word for word in (title, *shared_summary(base, swept)) if word], width, gap=" · ")
    )
    if base.capacity is not None and not swept & {"gpu", "gpu_total_bytes"}:
        lines.append(f"{card_name(base.capacity.gpu)} · {format_bytes(base.capacity.usable_bytes)} usable")
    lines.append("")
    lines += _table(axes, points, width)
    lines.append("")
    legend = "needed in total, GiB (2^30 bytes)"
    if any(point.fits is not None for point in points):
        legend += f"; {TOO_LARGE} does not fit"
    if any(point.word == "tight" for point in points):
        legend += f", {TIGHT} tight: it fits with less than 95 %"
    lines.append(legend)
    lines += _errors(axes, points, width)
    return lines


def title_of(base: Result, swept: set[str]) -> str:
    """The model that every point shares; empty where they are of several."""
    return "" if "model" in swept else model_title(base.model.id)


def shared_summary(base: Result, swept: set[str]) -> list[str]:
    """The settings that every point shares: words that show a swept key's own value are left out."""
    table = base.scenario.get(base.scenario["task"]) or {}
    own = {str(table.get(key)) for key in swept} | ({"full training"} if "method" in swept else set())
    marks = [mark for key, mark in _MARKS.items() if key in swept]
    words = [word for word in settings_summary(base) if word not in own and not any(mark in word for mark in marks)]
    # how many of its parameters are trained is one model's
    return [word.partition(" (")[0] for word in words] if "model" in swept else words


def _table(axes: Sequence[Axis], points: Sequence[Point], width: int) -> list[Line]:
    rows = axes[0]
    heads = axes[1].shown if len(axes) == 2 else ("needed",)
    corner = f"{rows.key} ↓  {axes[1].key} →" if len(axes) == 2 else rows.key
    first = max(len(corner), *map(len, rows.shown))
    cells = [_cell(point) for point in points]
    each = max(len(head) for head in heads)
    each = max(each, *(len(text) for text, _ in cells))
    at_once = max(1, (width - first) // (each + _GAP))
    lines: list[Line] = []
    for start in range(0, len(heads), at_once):
        shown = range(start, min(start + at_once, len(heads)))
        if start:
            lines.append("")
        lines.append(corner.ljust(first) + "".join(" " * _GAP + heads[j].rjust(each) for j in shown))
        for i, label in enumerate(rows.shown):
            line: list[Segment] = [(label.rjust(first), "")]
            for j in shown:
                text, style = cells[i * len(heads) + j]
                line.append((" " * _GAP + text.rjust(each), style))
            lines.append(line)
    return lines


def _cell(point: Point) -> Segment:
    """A blank stands where the mark would: numbers stay in line."""
    if point.needed_bytes is None:
        return f"{NO_ANSWER}  ", ""
    text = f"{gib(point.needed_bytes):,.2f}"
    if point.fits is None:
        return text, ""
    mark, style = {"fits": (" ", "green"), "tight": (TIGHT, "yellow")}.get(point.word or "", (TOO_LARGE, "red"))
    return f"{text} {mark}", style


def _errors(axes: Sequence[Axis], points: Sequence[Point], width: int) -> list[Line]:
    """Each reason once, with the first combination that it holds for."""
    first: dict[str, Point] = {}
    for point in points:
        if point.error:
            first.setdefault(point.error, point)
    lines: list[Line] = []
    for error, point in first.items():
        where = ", ".join(f"{axis.key}={label}" for axis, label in zip(axes, point.labels, strict=True))
        lines += wrapped_text(f"{NO_ANSWER} {where}: ", error, width)
    return lines
