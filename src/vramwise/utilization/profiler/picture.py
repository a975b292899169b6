"""A picture of a trace as SVG: per rank a strip of the timeline by class, and a bar of where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vramwise import svg
from vramwise.units import format_bytes
from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, OTHER
from vramwise.utilization.profiler.kernels import own_class

if TYPE_CHECKING:
    from vramwise.utilization.profiler.columns import Integers
    from vramwise.utilization.profiler.recording import Recording

WIDTH, LEFT, STRIP, BAR, ROW, TOP = 960, 90, 34, 10, 66, 40
MEMORY = 44
BINS = 800
LANES = (
    (COMPUTE, "compute", "#3b6ea5", "compute_us"),
    (COMMUNICATION, "communication", "#c7752e", "exposed_comm_us"),
    (COPY, "copies", "#7a9a3c", "exposed_memory_us"),
    (OTHER, "other", "#8c8c8c", "other_us"),
)


def picture(recordings: Sequence[Recording], answer: dict[str, Any]) -> str:
    """The SVG text: the strip shows all classes as lanes, the bar exposed time; idle is blank."""
    rows, top = [], TOP
    for (rank, figures), recording in zip(answer["ranks"].items(), recordings, strict=True):
        rows.append(_row(rank, figures, recording, top))
        top += ROW
        for device in figures.get("memory", ()):
            rows.append(_memory(device, figures["classified"]["span_us"], top))
            top += MEMORY
    height = top + 10
    legend = "".join(
        svg.box(LEFT + 150 * i, 12, 12, 12, colour) + svg.text(LEFT + 18 + 150 * i, 22, name)
        for i, (_, name, colour, _) in enumerate(LANES)
    )
    return svg.document(WIDTH, height, [legend, *rows], fixed=False)


def _row(rank: str, figures: dict[str, Any], recording: Recording, top: int) -> str:
    label = svg.text(8, top + 20, f"rank {rank[:10]}")
    if figures["hta"] is None or not figures["classified"]["span_us"]:
        return label + svg.text(LEFT, top + 20, "no GPU events")
    width = WIDTH - LEFT - 10
    own = figures["classified"]
    frame = svg.box(LEFT, top, width, STRIP, "#f2f2f2")
    parts, x = [], float(LEFT)
    for _, _, colour, key in LANES:
        share = width * own[key] / own["span_us"]
        parts.append(svg.box(x, top + STRIP + 3, share, BAR, colour))
        x += share
    said = f"0 – {own['span_us'] / 1000:,.1f} ms, idle {own['idle_pct']} %"
    end = svg.text(LEFT, top + STRIP + 24, said, size=10)
    return label + frame + _strip(recording, top, width) + "".join(parts) + end


def _memory(device: dict[str, Any], span_us: float, top: int) -> str:
    """Allocated bytes as an area and reserved ones as a line, on the strip's axis of time, from nothing to the most."""
    timeline, allocated = device["timeline"], device["allocated_bytes"]
    if allocated is None or not span_us:
        return ""
    high, last, reserved = (timeline[f"{key}_bytes"] for key in ("allocated_high", "allocated_last", "reserved"))
    most = max([1, *high, *(reserved or [])])
    width, deep = WIDTH - LEFT - 10, MEMORY - 16
    base = top + deep

    def point(at_us: float, held: int) -> tuple[float, float]:
        return LEFT + width * min(max(at_us / span_us, 0.0), 1.0), base - deep * max(held, 0) / most

    ends = [at + timeline["bin_us"] for at in timeline["at_us"]]
    corners = [
        corner
        for at, end, highest, held in zip(timeline["at_us"], ends, high, last, strict=True)
        for corner in (point(at, highest), point(end, highest), point(end, held))
    ]
    area = svg.area([point(timeline["at_us"][0], 0), *corners, point(ends[-1], 0)], "#b7a7cf")
    points = [] if reserved is None else [point(*pair) for pair in zip(timeline["at_us"], reserved, strict=True)]
    line = svg.path(points, "#8c8c8c") if points else ""
    said = f"allocated peak {format_bytes(allocated['peak'])} at {allocated['peak_at_us'] / 1000:,.1f} ms"
    said += " (since the trace began)" if device["relative"] else ""
    said += "" if device["reserved_bytes"] is None else f", reserved {format_bytes(device['reserved_bytes']['peak'])}"
    return svg.text(8, top + 16, device["device"], size=10) + area + line + svg.text(LEFT, base + 11, said, size=10)


def _strip(recording: Recording, top: int, width: int) -> str:
    """One lane a class, one mark a bin of the timeline, as dark as the share of the bin in which the class ran."""
    from vramwise.utilization.profiler.columns import np

    events = recording.on_gpu
    classes = np.array([own_class(name) for name in recording.names], dtype=np.int64)[events.name]
    begin, end = int(events.start.min()), int(events.end.max())
    edges = np.linspace(0, end - begin, BINS + 1)
    lane = STRIP / len(LANES)
    marks = []
    for place, (which, _, colour, _) in enumerate(LANES):
        chosen = classes == which
        if not chosen.any():
            continue
        starts, ends = intervals.union(events.start[chosen], events.end[chosen])
        share = _covered(starts - begin, ends - begin, edges)
        y = top + place * lane
        for i in np.flatnonzero(share > 0.005):
            x = LEFT + width * i / BINS
            marks.append(svg.box(x, y, width / BINS, lane, colour, opacity=share[i]))
    return "".join(marks)


def _covered(starts: Integers, ends: Integers, edges: Any) -> Any:
    """Share of each bin that a union covers."""
    from vramwise.utilization.profiler.columns import np

    times = np.empty(2 * len(starts))
    times[0::2], times[1::2] = starts, ends
    running = np.concatenate([[0.0], np.cumsum((ends - starts).astype(float))])
    levels = np.empty(2 * len(starts))
    levels[0::2], levels[1::2] = running[:-1], running[1:]
    return np.diff(np.interp(edges, times, levels)) / (edges[1] or 1.0)
