"""The screen of `vramwise profile --compat hta`: HTA's tables under HTA's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramwise.cli.screens.paint import Line, columns

Tables = Mapping[str, Any]


def hta_lines(ranks: Mapping[str, Tables | None]) -> list[Line]:
    """All ranks in one breakdown, then kernel types and idle time rank by rank."""
    known = {rank: tables for rank, tables in ranks.items() if tables is not None}
    lines: list[Line] = [[("Holistic Trace Analysis 0.5's figures, by its rules", "bold")]]
    lines += [f"rank {rank}: no GPU events" for rank in ranks if rank not in known]
    if not known:
        return lines
    names = [*next(iter(known.values()))["temporal_breakdown"], "comp_comm_overlap_pctg"]
    rows: list[tuple[str, ...]] = [("rank", *names)]
    for rank, tables in known.items():
        values = [*tables["temporal_breakdown"].values(), tables["comp_comm_overlap_pctg"]]
        rows.append((rank, *map(_figure, values)))
    lines += ["", *columns(rows, gap=2)]
    for rank, tables in known.items():
        lines += ["", [(f"rank {rank}", "bold"), (f"   rounding: {tables['rounding']}", "")]]
        heads: tuple[str, ...] = ("kernel_type", "sum", "percentage")
        types = [(one[heads[0]], _figure(one["sum"]), _figure(one["percentage"])) for one in tables["kernel_breakdown"]]
        lines += [f"  {line}" for line in columns([heads, *types])]
        idle = [
            (str(one["stream"]), one["idle_category"], _figure(one["idle_time"]), _figure(one["idle_time_ratio"]))
            for one in tables["idle_time_breakdown"]
        ]
        heads = ("stream", "idle_category", "idle_time", "idle_time_ratio")
        lines += ["", *(f"  {line}" for line in columns([heads, *idle], numbers_from=2))]
    return lines


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 100 else f"{value:,.2f}"
