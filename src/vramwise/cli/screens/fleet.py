"""The screen of `vramwise fleet`: where the GPU-hours went, by day and owner, and the jobs that waste most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from vramwise.cli.language import AsIs
from vramwise.cli.listing import table_blocks
from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.fleet.answer import FleetAnswer
from vramwise.fleet.jobs import Job
from vramwise.fleet.listed import WORDS, listed
from vramwise.fleet.windows import DAY_S, when
from vramwise.units import counted

MOST_DAYS, MOST_OWNERS, MOST_MISSING = 31, 5, 5
LONGEST_ID = 34
_MARKS = "█▓▒░·"
_PARTS = ("SMs at work", "communication", "launch-bound, small kernels", "idle")


def fleet_lines(answer: FleetAnswer, *, top: int) -> list[Line]:
    """The whole screen."""
    about, totals = answer.about, answer.answers.totals
    hours = float(totals["gpu_hours"])
    lines: list[Line] = [_title(about), ""]
    if not hours:
        return [*lines, *_said(answer), "no job used a GPU in this time"]
    lines += _parts(totals)
    for label, text in _facts(answer):
        lines += wrapped_text(label, text, screen_width())
    for block in _job_blocks(answer.jobs[:top]):
        lines += ["", *block]
    if len(answer.jobs) > top:
        lines.append(f"and {len(answer.jobs) - top:,} more (--top, --json, --csv)")
    lines += ["", *_days(answer.answers.days)]
    owners = answer.answers.by_owner
    if len(owners) > 1:
        rows = [("owner", "jobs", "GPU-hours", "wasted"), *map(_owner_row, owners[:MOST_OWNERS])]
        lines += ["", *columns(rows)]
    return [*lines, *(["", *said] if (said := _said(answer)) else [])]


def _title(about: Mapping[str, object]) -> Line:
    place = str(about.get("prometheus", "a kept table"))
    since, until = about.get("since_s"), about.get("until_s")
    if not isinstance(since, int | float) or not isinstance(until, int | float):
        return [(place, "bold")]
    return [(place, "bold"), (f"   {when(since)} – {when(until)}, steps of {about.get('step_s')} s", "")]


def _parts(totals: Mapping[str, Any]) -> Iterator[Line]:
    """The hours as a bar and as a table whose rows add up."""
    hours = float(totals["gpu_hours"])
    lost = [float(totals[f"{name}_gpu_hours"] or 0.0) for name in ("communication", "launch_bound", "idle")]
    parts = [max(0.0, hours - sum(lost)), *lost]
    width = screen_width() - 4
    cells = [round(width * part / hours) or int(part > 0) for part in parts]
    cells[cells.index(max(cells))] += width - sum(cells)
    yield "  " + "".join(mark * count for mark, count in zip(_MARKS, cells, strict=False))
    rows = [
        (f"{mark} {name}", f"{part:,.1f}", f"{100 * part / hours:.1f} %")
        for mark, name, part in zip(_MARKS, _PARTS, parts, strict=False)
    ]
    yield from (f"  {line}" for line in columns([*rows, ("  GPU-hours", f"{hours:,.1f}", "100.0 %")]))
    yield ""


def _facts(answer: FleetAnswer) -> Iterator[tuple[str, str]]:
    totals, nobody = answer.answers.totals, float(answer.about.get("unallocated_gpu_hours", 0.0))
    hours, wasted = float(totals["gpu_hours"]), float(totals["wasted_gpu_hours"])
    yield (
        "wasted     ",
        f"{wasted:,.1f} of {hours:,.1f} GPU-hours ({100 * wasted / hours:.0f} %) of {counted(totals['jobs'], 'job')}",
    )
    if nobody:
        yield "no job     ", f"{nobody:,.1f} GPU-hours more in which no job had the card"
    for row in answer.answers.smaller[:3]:
        jobs = f"{counted(row['jobs'], 'job')} with {row['gpu_hours']:,.1f} GPU-hours on {row['gpu']}"
        yield "smaller    ", f"{jobs} would fit {row['smaller_gpu']}"
    if totals["energy_j"]:
        each = totals["joules_per_token"]
        per_token = f"; {each:,.3f} J a token" if each else ""
        yield "energy     ", f"{totals['energy_j'] / 3.6e6:,.1f} kWh{per_token}"


def _job_blocks(jobs: Sequence[Job]) -> list[list[str]]:
    """The jobs that waste most; names and cards on one line each."""
    titles, rows = listed(jobs)
    shown = [[AsIs(_short(name)), gpus, _short(card), *rest] for name, gpus, card, *rest in rows]
    return table_blocks(titles, shown, {i for i, title in enumerate(titles) if title not in WORDS}, screen_width())


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_ID else f"{line[: LONGEST_ID - 1]}…"


def _days(days: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """How the share of wasted hours went, a row a window."""
    widest = max(float(day["gpu_hours"]) for day in days)
    is_daily = all(later["start_s"] - day["start_s"] >= DAY_S for day, later in pairwise(days))
    rows = [("from (UTC)", "GPU-hours", "wasted", "")]
    for day in days[-MOST_DAYS:]:
        hours = float(day["gpu_hours"])
        wasted = sum(float(day[f"{name}_gpu_hours"] or 0.0) for name in ("idle", "launch_bound", "communication"))
        full, empty = (round(24 * part / widest) if widest else 0 for part in (hours - wasted, wasted))
        start = when(day["start_s"]).removesuffix(" UTC")
        share = f"{100 * wasted / hours:.0f} %" if hours else "–"
        rows.append(
            (start[:10] if is_daily and len(days) > 1 else start, f"{hours:,.1f}", share, "█" * full + "░" * empty)
        )
    yield from columns(rows, left=(3,))


def _owner_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    hours, wasted = float(row["gpu_hours"]), float(row["wasted_gpu_hours"])
    share = f" ({100 * wasted / hours:.0f} %)" if hours else ""
    return AsIs(_short(str(row["owner"]))), f"{row['jobs']:,}", f"{hours:,.1f}", f"{wasted:,.1f}{share}"


def _said(answer: FleetAnswer) -> list[Line]:
    """What is missing and what to know."""
    width = screen_width()
    missing = [str(text) for text in answer.about.get("missing", ())]
    lines: list[Line] = [line for text in missing[:MOST_MISSING] for line in wrapped_text("MISSING    ", text, width)]
    if len(missing) > MOST_MISSING:
        lines.append(f"MISSING    and {len(missing) - MOST_MISSING:,} more (--json)")
    notes = [str(text) for text in answer.about.get("notes", ())]
    return lines + [line for text in notes for line in wrapped_text("note       ", text, width)]
