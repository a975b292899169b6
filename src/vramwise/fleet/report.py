"""The report of a fleet as one HTML file: tables and plots, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from vramwise.errors import printable
from vramwise.fleet.answer import FleetAnswer
from vramwise.fleet.jobs import Job
from vramwise.fleet.listed import listed
from vramwise.fleet.windows import when
from vramwise.units import counted

WIDTH, HEIGHT, LEFT, BOTTOM = 960, 260, 60, 40
PARTS: Final = (
    ("SMs at work", "#228833"), ("communication", "#4477aa"), ("launch-bound, small kernels", "#ccbb44"),
    ("idle", "#ee6677"),
)  # fmt: skip
"""Told apart with any colour vision (Paul Tol's bright scheme)."""
MOST_BARS = 20
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1100px;margin:2rem auto;padding:0 1rem;"
    "color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1rem 0;width:100%}td,th{padding:.3rem .6rem;text-align:right;"
    "border-bottom:1px solid #ddd;overflow-wrap:anywhere}td:first-child,th:first-child,.t{text-align:left}"
    "svg{width:100%;height:auto}.m{color:#a00}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}td,th{border-color:#444}svg text{fill:#ddd}"
    ".m{color:#f88}}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def report(answer: FleetAnswer, *, top: int) -> str:
    """The whole file."""
    about, totals = answer.about, answer.answers.totals
    title = f"GPU-hours from {when(float(about.get('since_s', 0)))} to {when(float(about.get('until_s', 0)))}"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
        f"<h1>{_text(title)}</h1><p>{_text(str(about.get('prometheus', '')))}</p>", *_summary(answer),
        "<h2>Where the hours went</h2>", _days_plot(answer.answers.days), "<h2>Jobs that waste most</h2>",
        _jobs_plot(answer.jobs[: min(top, MOST_BARS)]), _table(*listed(answer.jobs[:top])),
        "<h2>By reason</h2>", _grouped(answer.answers.by_reason, "reason"),
        "<h2>By owner</h2>", _grouped(answer.answers.by_owner, "owner"),
    ]  # fmt: skip
    if answer.answers.smaller:
        rows = [
            (row["gpu"], row["smaller_gpu"], f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}")
            for row in answer.answers.smaller
        ]
        parts += ["<h2>Memory far below the card</h2>", _table(("card", "would fit", "jobs", "GPU-hours"), rows)]
    if not totals["jobs"]:
        parts.append("<p>No job used a GPU in this time.</p>")
    return "\n".join((*parts, "</body></html>")) + "\n"


def _summary(answer: FleetAnswer) -> Iterator[str]:
    totals = answer.answers.totals
    hours, wasted = float(totals["gpu_hours"]), float(totals["wasted_gpu_hours"])
    share = f" ({100 * wasted / hours:.0f} %)" if hours else ""
    yield f"<p><b>{wasted:,.1f}</b> of {hours:,.1f} GPU-hours wasted{share}, {counted(totals['jobs'], 'job')}; "
    yield f"{float(answer.about.get('unallocated_gpu_hours', 0)):,.1f} GPU-hours more without a job."
    if totals["energy_j"]:
        each = totals["joules_per_token"]
        yield f" {totals['energy_j'] / 3.6e6:,.1f} kWh{f', {each:,.3f} J a token' if each else ''}."
    yield "</p>"
    for text in answer.about.get("missing", ()):
        yield f'<p class="m">missing: {_text(str(text))}</p>'
    for text in answer.about.get("notes", ()):
        yield f"<p>{_text(str(text))}</p>"


def _grouped(rows: Sequence[Mapping[str, object]], name: str) -> str:
    cells = [
        (str(row[name]), f"{row['jobs']:,}", f"{row['gpu_hours']:,.1f}", f"{row['wasted_gpu_hours']:,.1f}")
        for row in rows
    ]
    return _table((name, "jobs", "GPU-hours", "wasted"), cells)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(title)}</th>" for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _days_plot(days: Sequence[Mapping[str, Any]]) -> str:
    """Hours of each window, stacked by what became of them."""
    if not days:
        return ""
    top = max(float(day["gpu_hours"]) for day in days) or 1.0
    wide = (WIDTH - LEFT) / len(days)
    marks = [_axis(top)]
    for i, day in enumerate(days):
        base = 0.0
        for (name, colour), part in zip(PARTS, _parts(day), strict=True):
            y = _y((base + part) / top)
            height = (HEIGHT - BOTTOM) * part / top
            said = _text(f"{when(day['start_s'])}, {name}: {part:,.1f} GPU-hours")
            at = f'x="{LEFT + i * wide + wide * 0.1:.1f}" y="{y:.1f}" width="{wide * 0.8:.1f}" height="{height:.1f}"'
            marks.append(f'<rect {at} fill="{colour}"><title>{said}</title></rect>')
            base += part
        if i % max(1, len(days) // 8) == 0:
            at = f'x="{LEFT + (i + 0.1) * wide:.1f}" y="{HEIGHT - BOTTOM + 16}"'
            marks.append(f"<text {at}>{when(day['start_s'])[5:10]}</text>")
    return _svg(HEIGHT, "GPU-hours by day", [*marks, *_legend(HEIGHT - 6)])


def _jobs_plot(jobs: Sequence[Job]) -> str:
    """One bar a job, as long as its hours."""
    if not jobs:
        return ""
    longest = max(job.gpu_hours for job in jobs) or 1.0
    left, row = 260, 24
    marks = []
    for i, job in enumerate(jobs):
        lost = (job.communication_gpu_hours or 0.0, job.launch_bound_gpu_hours, job.idle_gpu_hours)
        x = float(left)
        marks.append(f'<text x="{left - 8}" y="{i * row + 16}" text-anchor="end">{_text(job.id[:32])}</text>')
        for (name, colour), part in zip(PARTS, (max(0.0, job.gpu_hours - sum(lost)), *lost), strict=True):
            width = (WIDTH - left) * part / longest
            said = _text(f"{name}: {part:,.1f} GPU-hours")
            marks.append(
                f'<rect x="{x:.1f}" y="{i * row + 3}" width="{width:.1f}" height="{row - 6}" fill="{colour}">'
                f"<title>{said}</title></rect>"
            )
            x += width
    height = len(jobs) * row + 30
    return _svg(height, "GPU-hours by job", [*marks, *_legend(height - 6)])


def _parts(row: Mapping[str, Any]) -> tuple[float, ...]:
    lost = [float(row[f"{name}_gpu_hours"] or 0.0) for name in ("communication", "launch_bound", "idle")]
    return (max(0.0, float(row["gpu_hours"]) - sum(lost)), *lost)


def _axis(top: float) -> str:
    lines = (
        f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(part):.1f}" y2="{_y(part):.1f}" stroke="#888" stroke-width=".5"/>'
        f'<text x="{LEFT - 6}" y="{_y(part) + 4:.1f}" text-anchor="end">{top * part:,.0f}</text>'
        for part in (0.0, 0.5, 1.0)
    )
    return "".join(lines)


def _y(share: float) -> float:
    return (HEIGHT - BOTTOM) * (1 - share) + 8 * share


def _legend(y: int) -> Iterator[str]:
    for i, (name, colour) in enumerate(PARTS):
        x = LEFT + i * 210
        yield f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{colour}"/>'
        yield f'<text x="{x + 18}" y="{y}">{name}</text>'


def _svg(height: int, title: str, marks: Sequence[str]) -> str:
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" font-size="13"><title>{title}</title>'
    return head + "".join(marks) + "</svg>"


def _text(text: str) -> str:
    return escape(printable(text))
