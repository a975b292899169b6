"""A picture of a trace as SVG: per rank a strip of the timeline by class, and a bar of where the time went."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from vramwise.utilization.profiler import intervals
from vramwise.utilization.profiler.decomposition import COMMUNICATION, COMPUTE, COPY, OTHER
from vramwise.utilization.profiler.kernels import own_class

if TYPE_CHECKING:
    from vramwise.utilization.profiler.recording import Integers, Recording

WIDTH, LEFT, STRIP, BAR, ROW, TOP = 960, 90, 34, 10, 66, 40
BINS = 800
LANES = (
    (COMPUTE, "compute", "#3b6ea5", "compute_us"),
    (COMMUNICATION, "communication", "#c7752e", "exposed_comm_us"),
    (COPY, "copies", "#7a9a3c", "exposed_memory_us"),
    (OTHER, "other", "#8c8c8c", "other_us"),
)


def picture(recordings: Sequence[Recording], answer: dict[str, Any]) -> str:
    """The SVG text: the strip shows all classes as lanes, the bar exposed time; idle is blank."""
    rows = [
        _row(rank, figures, recording, TOP + place * ROW)
        for place, ((rank, figures), recording) in enumerate(zip(answer["ranks"].items(), recordings, strict=True))
    ]
    height = TOP + ROW * len(rows) + 10
    legend = "".join(
        f'<rect x="{LEFT + 150 * i}" y="12" width="12" height="12" fill="{colour}"/>'
        f'<text x="{LEFT + 18 + 150 * i}" y="22">{name}</text>'
        for i, (_, name, colour, _) in enumerate(LANES)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{height}" fill="white"/>{legend}{"".join(rows)}</svg>\n'
    )


def _row(rank: str, figures: dict[str, Any], recording: Recording, top: int) -> str:
    label = f'<text x="8" y="{top + 20}">rank {escape(rank[:10])}</text>'
    if figures["hta"] is None or not figures["classified"]["span_us"]:
        return f'{label}<text x="{LEFT}" y="{top + 20}">no GPU events</text>'
    width = WIDTH - LEFT - 10
    own = figures["classified"]
    frame = f'<rect x="{LEFT}" y="{top}" width="{width}" height="{STRIP}" fill="#f2f2f2"/>'
    parts, x = [], float(LEFT)
    for _, _, colour, key in LANES:
        share = width * own[key] / own["span_us"]
        parts.append(f'<rect x="{x:.1f}" y="{top + STRIP + 3}" width="{share:.1f}" height="{BAR}" fill="{colour}"/>')
        x += share
    said = f"0 – {own['span_us'] / 1000:,.1f} ms, idle {own['idle_pct']} %"
    end = f'<text x="{LEFT}" y="{top + STRIP + 24}" font-size="10">{said}</text>'
    return label + frame + _strip(recording, top, width) + "".join(parts) + end


def _strip(recording: Recording, top: int, width: int) -> str:
    """One lane a class, one mark a bin of the timeline, as dark as the share of the bin in which the class ran."""
    import numpy as np

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
            marks.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width / BINS:.2f}" height="{lane:.1f}" '
                f'fill="{colour}" fill-opacity="{share[i]:.2f}"/>'
            )
    return "".join(marks)


def _covered(starts: Integers, ends: Integers, edges: Any) -> Any:
    """Share of each bin that a union covers."""
    import numpy as np

    times = np.empty(2 * len(starts))
    times[0::2], times[1::2] = starts, ends
    running = np.concatenate([[0.0], np.cumsum((ends - starts).astype(float))])
    levels = np.empty(2 * len(starts))
    levels[0::2], levels[1::2] = running[:-1], running[1:]
    return np.diff(np.interp(edges, times, levels)) / (edges[1] or 1.0)
