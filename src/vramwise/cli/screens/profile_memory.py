"""A trace's memory timeline on the screen: one line and a curve a device, and `--memory`'s table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.units import format_bytes

Figures = Mapping[str, Any]
ROWS = 24
_LEVELS = " ▁▂▃▄▅▆▇█"
_LABEL = 15


def memory_lines(devices: Sequence[Figures]) -> list[Line]:
    """Per device the totals and the curve of what was allocated."""
    lines: list[Line] = []
    for device in devices:
        lines += wrapped_text(f"  {'memory':<{_LABEL - 2}}", _totals(device), screen_width())
        if curve := _curve(device, screen_width() - _LABEL - 2):
            lines.append(" " * _LABEL + curve)
    return lines


def memory_table(devices: Sequence[Figures]) -> list[Line]:
    """At most ROWS rows a device: when, the least and the most allocated, and reserved bytes."""
    rows: list[tuple[str, ...]] = [("memory", "from", "allocated, least", "most", "at its end", "reserved")]
    for device in devices:
        timeline = device["timeline"]
        starts, step = timeline["at_us"], -(-len(timeline["at_us"]) // ROWS) or 1
        reserved = timeline["reserved_bytes"]
        for at in range(0, len(starts), step):
            part = slice(at, at + step)
            low, high = min(timeline["allocated_low_bytes"][part]), max(timeline["allocated_high_bytes"][part])
            last = timeline["allocated_last_bytes"][part][-1]
            held = "–" if reserved is None else format_bytes(max(reserved[part]))
            rows.append((device["device"], f"{starts[at] / 1000:,.2f} ms", *map(format_bytes, (low, high, last)), held))
    return [f"  {line}" for line in columns(rows)]


def _totals(device: Figures) -> str:
    parts = []
    allocated, reserved = device["allocated_bytes"], device["reserved_bytes"]
    since = " since the trace began" if device["relative"] else ""
    if allocated:
        during = f", in {allocated['peak_step']}" if allocated["peak_step"] else ""
        parts.append(
            f"allocated{since} {format_bytes(allocated['first'])} at first, peak {format_bytes(allocated['peak'])} at "
            f"{allocated['peak_at_us'] / 1000:,.2f} ms{during}, {format_bytes(allocated['last'])} at last"
        )
    if reserved:
        parts.append(f"reserved peak {format_bytes(reserved['peak'])}")
    return f"{device['device']}: {'; '.join(parts) or 'no totals in this trace'} ({device['events']:,} events)"


def _curve(device: Figures, width: int) -> str:
    """The most allocated in each of `width` equal times, as heights from nothing to the peak."""
    timeline = device["timeline"]
    starts, high, last = (timeline[key] for key in ("at_us", "allocated_high_bytes", "allocated_last_bytes"))
    if len(starts) < 2:
        return ""
    begin, span, top = starts[0], starts[-1] - starts[0] + timeline["bin_us"], max(high)
    most: dict[int, int] = {}
    ends: dict[int, int] = {}
    for start, highest, held in zip(starts, high, last, strict=True):
        place = min(int((start - begin) / span * width), width - 1)
        most[place], ends[place] = max(highest, most.get(place, 0)), held
    held, curve = 0, ""
    for place in range(width):
        height = most.get(place, held)  # nothing happened: what was held before still is
        curve += _LEVELS[max(0, min(8, round(8 * height / top)))] if top > 0 else " "
        held = ends.get(place, held)
    return curve
