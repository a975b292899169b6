"""Two runs of a job side by side: where a step of the mean rank takes longer; the parts add up to the whole."""

from __future__ import annotations

from typing import Any, Final

from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.job.tables import Tables, tables_of

NS_PER_MS = 1e6
TOP_KERNELS: Final = 10
WHOLE: Final = "step"
PARTS: Final = {
    "compute": "compute_ns",
    "exposed communication": "exposed_communication_ns",
    "copies": "copies_ns",
    "other": "other_ns",
    "idle: the CPU launches late": "cpu_late_ns",
    "idle: launches take their time": "launch_latency_ns",
    "idle: waits for something launched before": "waiting_ns",
    "idle: no launch in the trace": "unknown_ns",
}
"""The parts of a rank's window; they add up to it."""


def two_jobs(a: JobFolder, b: JobFolder) -> dict[str, object]:
    """`terms`: milliseconds a step of the mean rank, `difference` a − b; `kernels`: those whose time differs most."""
    (parts_a, kernels_a), (parts_b, kernels_b) = (_of(folder) for folder in (a, b))
    terms = [_term(f"{WHOLE}/{name}", parts_a[name], parts_b[name]) for name in PARTS]
    whole = _term(WHOLE, sum(parts_a.values()), sum(parts_b.values()))
    kernels = [_term(name, kernels_a.get(name, 0.0), kernels_b.get(name, 0.0)) for name in {**kernels_a, **kernels_b}]
    kernels.sort(key=lambda term: (-abs(term["difference"]), term["path"]))
    return {"terms": [whole, *terms], "kernels": kernels[:TOP_KERNELS]}


def _of(folder: JobFolder) -> tuple[dict[str, float], dict[str, float]]:
    with tables_of(folder) as tables:
        of_step = _ranks_times_steps(tables) * NS_PER_MS
        sums = ", ".join(f"sum({column}) AS {column}" for column in PARTS.values())
        (whole,) = tables.rows(f"SELECT {sums} FROM ranks")
        kernels = tables.rows("SELECT name, sum(ns) AS ns FROM kernels JOIN ranks USING (trace) GROUP BY name")
    parts = {name: (whole[column] or 0) / of_step for name, column in PARTS.items()}
    return parts, {row["name"]: row["ns"] / of_step for row in kernels}


def _ranks_times_steps(tables: Tables) -> int:
    """Steps over all ranks, a rank without any as one."""
    (counted,) = tables.rows("""
        SELECT coalesce(sum(greatest(1, found)), 0)::BIGINT AS steps FROM (
            SELECT count(steps.step) AS found FROM ranks LEFT JOIN steps USING (trace) GROUP BY ranks.place)""")
    return max(1, int(counted["steps"]))


def _term(path: str, a: float, b: float) -> dict[str, Any]:
    return {"path": path, "a": a, "b": b, "difference": a - b}
