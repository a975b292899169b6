"""What is said of a whole job: the `job` object of `vramwise profile --json`."""

from __future__ import annotations

from typing import Any

from vramwise.utilization.job.folder import JobFolder
from vramwise.utilization.job.losses import losses
from vramwise.utilization.job.tables import Tables, tables_of
from vramwise.utilization.job.uneven import experts, pipeline, slow_links, stragglers
from vramwise.utilization.profiler.growing import FURTHER

NS_PER_MS = 1e6
MOST_CELLS = 4096
"""Ranks times steps of the heat strip that the answer holds; the median of neighbours above that."""
SHARES = ("compute", "exposed_communication", "copies", "other", "idle")
CAUSES = ("cpu_late", "launch_latency", "waiting", "unknown")


def answer_of(folder: JobFolder) -> dict[str, object]:
    """The job of a folder, with the traces that could not be read into it."""
    with tables_of(folder) as tables:
        return job_answer(tables) | {"failed": folder.failures()}


def job_answer(tables: Tables) -> dict[str, object]:
    """The whole job; times in milliseconds, shares as fractions of all ranks' windows together."""
    ranks = tables.rows("SELECT * FROM ranks ORDER BY place")
    steps = _steps(tables)
    count = max(1, steps["count"])
    late = stragglers(tables, count)
    return {
        "ranks": len(ranks),
        "missing": _missing(ranks),
        "again": [row["rank"] for row in ranks if row["again"]],
        "without_gpu_events": [
            row["trace"] for row in tables.rows("SELECT trace FROM traces WHERE gpu_events = 0 ORDER BY trace")
        ],
        "truncated": [row["rank"] for row in ranks if row["truncated"]],
        "names_cut": [
            row["rank"]
            for row in tables.rows(
                "SELECT rank FROM kernels JOIN ranks USING (trace) WHERE name = ? ORDER BY place", FURTHER
            )
        ],
        "failed": {},
        "steps": steps,
        "share": _shares(ranks, SHARES, "span_ns"),
        "idle_causes": _shares(ranks, CAUSES, "idle_ns"),
        "stragglers": late,
        "slow_links": slow_links(tables),
        "pipeline": pipeline(tables, count),
        "experts": experts(tables, count),
        "memory": _memory(tables),
        "losses": losses(tables, ranks, count, late),
        "spread": _spread(tables),
    }


def times_of(tables: Tables, rank: str | None = None) -> dict[str, object]:
    """How many ranks, and nanoseconds of their windows in all: `span`, `busy` and `compute`; of one rank alone."""
    (found,) = tables.rows(
        """SELECT count(*) AS ranks, coalesce(sum(span_ns), 0)::BIGINT AS span,
                  coalesce(sum(span_ns - idle_ns), 0)::BIGINT AS busy, coalesce(sum(compute_ns), 0)::BIGINT AS compute
           FROM ranks WHERE coalesce(rank = $1, true)""",
        rank,
    )
    return found


def _shares(ranks: list[dict[str, Any]], names: tuple[str, ...], of: str) -> dict[str, float]:
    whole = sum(row[of] for row in ranks)
    return {name: round(sum(row[f"{name}_ns"] for row in ranks) / whole, 6) if whole else 0.0 for name in names}


def _missing(ranks: list[dict[str, Any]]) -> list[str]:
    """Ranks that the traces speak of and that none is from."""
    size = max((row["world_size"] or 0 for row in ranks), default=0)
    there = {row["rank"] for row in ranks}
    return [str(rank) for rank in range(min(size, 1_000_000)) if str(rank) not in there]


def _steps(tables: Tables) -> dict[str, Any]:
    """How many steps, how long the median is on the CPU, and which ranks were recorded in other steps than most."""
    rows = tables.rows("""
        SELECT ranks.rank, list_sort(list(DISTINCT step)) AS steps FROM steps JOIN ranks USING (trace)
        GROUP BY ranks.rank ORDER BY min(ranks.place)""")
    median = tables.rows("SELECT median(cpu_ns) AS ns FROM steps JOIN ranks USING (trace)")[0]["ns"]
    usual: dict[tuple[int, ...], int] = {}
    for row in rows:
        usual[tuple(row["steps"])] = usual.get(tuple(row["steps"]), 0) + 1
    most = max(usual, key=lambda steps: usual[steps], default=())
    others = [row["rank"] for row in rows if tuple(row["steps"]) != most]
    milliseconds = None if median is None else median / NS_PER_MS
    return {"count": len(most), "median_ms": milliseconds, "recorded_otherwise": others}


def _memory(tables: Tables) -> dict[str, object] | None:
    """The ranks with the least and the most allocated, and the median."""
    rows = tables.rows("""
        SELECT rank, max(allocated_bytes) AS allocated_bytes, max(reserved_bytes) AS reserved_bytes
        FROM memory JOIN ranks USING (trace) GROUP BY rank ORDER BY allocated_bytes, min(place)""")
    if not rows:
        return None
    return {"lowest": rows[0], "median_allocated_bytes": rows[len(rows) // 2]["allocated_bytes"], "highest": rows[-1]}


def _spread(tables: Tables) -> dict[str, object] | None:
    """Compute of each rank in each step against the step's median rank: what a heat strip shows."""
    rows = tables.rows(
        """
        WITH of_ranks AS (
            SELECT place, rank, step, steps.compute_ns FROM steps JOIN ranks USING (trace) WHERE NOT again),
        blocks AS (SELECT *, place * ? // greatest(?, (SELECT count(*) FROM ranks) * (SELECT count(DISTINCT step)
                   FROM of_ranks)) AS block FROM of_ranks)
        SELECT arg_min(rank, place) AS rank, step, median(compute_ns) AS ns
        FROM blocks GROUP BY block, step ORDER BY min(place), step""",
        MOST_CELLS,
        MOST_CELLS,
    )
    if not rows:
        return None
    steps = sorted({row["step"] for row in rows})
    by_rank: dict[str, dict[int, float]] = {}
    for row in rows:
        by_rank.setdefault(row["rank"], {})[row["step"]] = row["ns"] / NS_PER_MS
    cells = {rank: [found.get(step) for step in steps] for rank, found in by_rank.items()}
    return {"steps": steps, "compute_ms": cells}
