"""The screen of a whole job: one for all ranks, whose figures have a screen of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from vramwise.cli.screens.paint import Line, columns, screen_width, wrapped_text
from vramwise.errors import clipped
from vramwise.units import counted, format_bytes
from vramwise.utilization.profiler.kernels import short_name

Figures = Mapping[str, Any]
MOST_NAMED = 8
MOST_ROWS = 12
MOST_STEPS = 60
_SHARES = (
    ("compute", "compute"),
    ("exposed_communication", "exposed communication"),
    ("copies", "copies"),
    ("other", "other"),
    ("idle", "idle"),
)
_CAUSES = (
    ("cpu_late", "the CPU launches late"),
    ("launch_latency", "launches take their time"),
    ("waiting", "waits for something launched before"),
    ("unknown", "no launch in the trace"),
)
_HEAT = "·░▒▓█"
_HEAT_STEP = 0.02


def job_lines(job: Figures) -> list[Line]:
    """Where the time of all ranks went, what differs over them, and what to do about it."""
    steps = job["steps"]
    of_steps = f", {counted(steps['count'], 'step')} of {steps['median_ms']:,.1f} ms" if steps["count"] else ""
    lines: list[Line] = [[(counted(job["ranks"], "rank"), "bold"), (of_steps, "")]]
    lines += _where(job)
    lines += _losses(job["losses"])
    lines += _who(job)
    lines += _strip(job["spread"])
    return [*lines, *_gone(job)]


def rank_lines(rank: str, figures: Figures) -> list[Line]:
    """One rank by its tables: where its time went, what it waited for, its kernels, steps and memory."""
    where = ", ".join(filter(None, (figures["gpu"], figures["host"])))
    lines: list[Line] = [[(f"rank {rank}", "bold"), (f"   {where}", "")]]
    lines += wrapped_text("  by its tables: ", f"there is no file {figures['trace']}", screen_width())
    rows = [(name, _ms(figures[f"{key}_ms"])) for key, name in _SHARES if figures[f"{key}_ms"]]
    rows += [(f"  idle: {name}", _ms(figures[f"{key}_ms"])) for key, name in _CAUSES if figures[f"{key}_ms"]]
    tables: list[list[tuple[str, ...]]] = [[*rows, ("span", _ms(figures["span_ms"]))]]
    tables.append([("collectives", "calls", "sum", "waiting for others")])
    for one in figures["waits"]:
        named = f'{one["kind"]} of "{one["group"]}"' if one["group"] else one["kind"]
        tables[-1].append((clipped(named, 60), f"{one['calls']:,}", _ms(one["sum_ms"]), _ms(one["waiting_ms"])))
    tables.append([("kernel", "calls", "sum")])
    tables[-1] += [(short_name(one["name"]), f"{one['count']:,}", _ms(one["sum_ms"])) for one in figures["kernels"]]
    tables.append([("step", "on the CPU", "compute", "exposed communication", "idle")])
    for one in figures["steps"][:MOST_STEPS]:
        times = (one[f"{key}_ms"] for key in ("cpu", "compute", "exposed_communication", "idle"))
        tables[-1].append((one["name"], *map(_ms, times)))
    tables.append([("memory", "allocated", "reserved")])
    for one in figures["memory"]:
        held = ("–" if one[key] is None else format_bytes(one[key]) for key in ("allocated_bytes", "reserved_bytes"))
        tables[-1].append((one["device"], *held))
    for table in tables:
        if len(table) > 1:
            lines += ["", *(f"  {line}" for line in columns(table))]
    return lines


def two_jobs_lines(found: Figures) -> list[Line]:
    """A step of the mean rank of two runs, by its parts, and the kernels whose time differs most."""
    whole, *parts = found["terms"]
    rows = [("ms a step of the mean rank", "A", "B", "A − B"), _row("step", whole)]
    rows += [_row("  " + term["path"].partition("/")[2], term) for term in parts if term["a"] or term["b"]]
    kernels = [_row("  " + short_name(term["path"]), term) for term in found["kernels"] if term["difference"]]
    if kernels:
        rows += [("", "", "", ""), ("kernels, each on its own", "", "", ""), *kernels]
    return [*columns(rows)]


def _row(name: str, term: Figures) -> tuple[str, str, str, str]:
    return (name, f"{term['a']:,.3f}", f"{term['b']:,.3f}", f"{round(term['difference'], 3) + 0.0:+,.3f}")


def _where(job: Figures) -> list[Line]:
    rows = [(name, _pct(job["share"][key])) for key, name in _SHARES if job["share"][key] >= 0.0005]
    causes = [
        f"{name} {_pct(job['idle_causes'][key])}" for key, name in _CAUSES if job["idle_causes"][key] >= 0.005
    ]  # fmt: skip
    lines: list[Line] = [f"  {line}" for line in columns(rows)]
    return [*lines, *wrapped_text("  of idle: ", "; ".join(causes), screen_width())] if causes else lines


def _losses(losses: Sequence[Figures]) -> list[Line]:
    if not losses:
        return ["", "nothing that costs more than 1 % of a step"]
    lines: list[Line] = ["", [("largest losses", "bold"), ("   a step of the mean rank; what to try", "")]]
    for loss in losses:
        gain = "" if loss["gain_ms"] == loss["ms_per_step"] else f" (at most {_ms(loss['gain_ms'])} to gain)"
        lines.append(f"  {_ms(loss['ms_per_step'])}  {loss['name']}{gain}")
        lines += wrapped_text("      ", loss["try"], screen_width())
    return lines


def _who(job: Figures) -> list[Line]:
    lines: list[Line] = []
    for one in job["stragglers"][:MOST_NAMED]:
        host = f" on {one['host']}" if one["host"] else ""
        group = f' of group "{one["group"]}"' if one["group"] else ""
        late = _ms(one["late_ms_per_step"])
        lines.append(f"  rank {one['rank']}{host}: {one['collective']}s{group} wait {late} a step for it")
    for one in job["slow_links"][:MOST_NAMED]:
        ranks = ", ".join(one["ranks"][:MOST_NAMED]) + (" …" if len(one["ranks"]) > MOST_NAMED else "")
        lines.append(f"  ranks {ranks}: {one['kind']} at {one['gb_s']:,.1f} GB/s, usual here {one['usual_gb_s']:,.1f}")
    if (stages := job["pipeline"]) is not None:
        lines.append(f"  pipeline: bubble {_pct(stages['bubble'])} of its ranks' time")
        if stages["heaviest_stage"] is not None:
            more = _pct(stages["heaviest_over_mean"])
            lines.append(f"  stage {stages['heaviest_stage']} computes {more} longer than the mean stage")
    if (experts := job["experts"]) is not None and experts["busiest_ranks"]:
        lines.append(f"  experts: the most tokens are at rank {', '.join(experts['busiest_ranks'][:MOST_NAMED])}")
    if (memory := job["memory"]) is not None:
        low, high = memory["lowest"], memory["highest"]
        lines.append(
            f"  memory: rank {low['rank']} {format_bytes(low['allocated_bytes'])} to rank {high['rank']} "
            f"{format_bytes(high['allocated_bytes'])}, median {format_bytes(memory['median_allocated_bytes'])}"
        )
    return ["", [("over the ranks", "bold")], *lines] if lines else []


def _strip(spread: Figures | None) -> list[Line]:
    """Compute of each rank in each step against the step's median: the ranks that differ most."""
    if spread is None or len(spread["compute_ms"]) < 2:
        return []
    cells = {rank: found[:MOST_STEPS] for rank, found in spread["compute_ms"].items()}
    usual = [median(known) if (known := [v for v in each if v is not None]) else None
             for each in zip(*cells.values(), strict=True)]  # fmt: skip
    over = {
        rank: [None if v is None or not usual[i] else v / usual[i] - 1 for i, v in enumerate(found)]
        for rank, found in cells.items()
    }
    most = {rank: max((abs(v) for v in found if v is not None), default=0.0) for rank, found in over.items()}
    shown = sorted((rank for rank in most if most[rank] >= _HEAT_STEP), key=lambda rank: -most[rank])[:MOST_ROWS]
    if not shown:
        return []
    rows = [(f"rank {rank}", "".join(_heat(v) for v in over[rank])) for rank in over if rank in shown]
    legend = f"{_HEAT[0]} within {_HEAT_STEP:.0%} of the step's median rank, {_HEAT[-1]} {4 * _HEAT_STEP:.0%} and more"
    lines: list[Line] = ["", [("compute, rank by step", "bold"), (f"   {legend}", "")]]
    return [*lines, *(f"  {line}" for line in columns(rows, numbers_from=2))]


def _heat(over: float | None) -> str:
    return " " if over is None else _HEAT[min(len(_HEAT) - 1, int(abs(over) / _HEAT_STEP))]


def _gone(job: Figures) -> list[Line]:
    """What the figures lack."""
    lines: list[Line] = []
    for what, names in (
        ("no trace of rank", job["missing"]),
        ("more than one trace of rank", job["again"]),
        ("cut-off trace of rank", job["truncated"]),
        ("more names of kernels than are kept in the trace of rank", job["names_cut"]),
        ("recorded in other steps than most: rank", job["steps"]["recorded_otherwise"]),
        ("without GPU events:", job["without_gpu_events"]),
        ("not read:", list(job["failed"].values())),
    ):
        if names:
            more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
            lines += wrapped_text(f"{what} ", ", ".join(names[:MOST_NAMED]) + more, screen_width())
    return ["", *lines] if lines else []


def _pct(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.2f} ms"
